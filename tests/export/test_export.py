"""Exported networks: any size, the network's results, nothing written if they differ."""

import json
import sys

import pytest
import torch

from gocor import __version__
from gocor.export import check, export_model, files
from gocor.export.check import run_onnx
from gocor.export.graph import MatchingGraph
from gocor.models.registry import create_model
from gocor.utils.errors import InputError

from .conftest import SIDE, small_network

pytestmark = pytest.mark.long


def test_the_file_gives_the_results_of_the_network_at_any_size(exported):
    run, network = run_onnx(exported.path), small_network()
    for batch, size, query_size in ((1, (50, 90), (61, 47)), (3, (100, 37), (100, 37)), (1, (16, 128), (190, 64))):
        reference, query = (255 * torch.rand(batch, 3, *shape) for shape in (size, query_size))
        with torch.no_grad():
            expected = network.predict(reference, query, min_size=SIDE, max_size=SIDE)
        for found, value in zip(run(reference, query), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-3)
    assert exported.errors.flow_mean < 1e-3
    assert exported.errors.flow_mean <= exported.errors.flow_max


def test_the_file_describes_itself_and_holds_no_custom_operator(exported):
    import onnx

    model = onnx.load(exported.path)
    onnx.checker.check_model(model)
    assert {node.domain for node in model.graph.node} == {""}
    assert not model.functions
    entries = {entry.key: entry.value for entry in model.metadata_props}
    assert entries == exported.metadata
    assert entries["model"] == "recurrent-gocor-tiny"
    assert entries["weights_sha256"] == "none: start values"
    assert entries["version"] == f"gocor {__version__}"
    assert entries["licence"].startswith("Apache-2.0")
    assert [value.name for value in model.graph.input] == ["reference", "query"]
    assert [value.name for value in model.graph.output] == ["flow", "confidence", "visibility"]
    for value in model.graph.input:  # batch, height and width are symbols
        assert [bool(size.dim_param) for size in value.type.tensor_type.shape.dim] == [True, False, True, True]


def test_updates_share_the_scores_of_all_pairs(exported):
    import onnx

    operators = [node.op_type for node in onnx.load(exported.path).graph.node]
    network = small_network()
    assert operators.count("GridSample") == network.updates * network.scales
    assert operators.count("Einsum") == network.scales + 1  # one more is the expected position of the start


def test_pt2_of_a_network_with_a_fine_stage(tmp_path, capfd):
    torch.manual_seed(0)
    network = create_model("recurrent-gocor-tiny", {"fine": True})
    network.updates = network.fine_updates = network.filters.iters = network.start.iters = 1
    found = export_model(network, tmp_path / "model.pt2", size=SIDE, weights=None)
    assert capfd.readouterr() == ("", "")
    assert found.errors.flow_mean < 1e-3
    extra = {"metadata.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    assert json.loads(extra["metadata.json"]) == found.metadata
    assert [len(value.shape) for value in program.module()(torch.rand(1, 3, 50, 90), torch.rand(1, 3, 61, 47))] == [
        4
    ] * 3


def test_a_full_disk_is_an_error_of_the_system(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    program = torch.export.export(torch.nn.Linear(64, 64), (torch.rand(1, 64),))
    monkeypatch.setattr(files, "_trace", lambda graph: program)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"File too large: .*model\.pt2"):
            export_model(small_network(), tmp_path / "model.pt2", size=SIDE, weights=None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert not list(tmp_path.iterdir())


def test_a_file_that_differs_is_not_written(tmp_path, monkeypatch):
    """The graph is not made here: another program stands in for it."""
    monkeypatch.setattr(files, "_trace", lambda graph: None)
    monkeypatch.setattr(files, "_write_onnx", lambda program, graph, path, metadata: path.write_bytes(b"graph"))
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    off = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)
    expected = check.sample_pairs(small_network(), SIDE)

    def wrong(reference, query):
        (pair,) = (pair for pair in expected if pair.reference.shape == reference.shape)
        return [pair.results[0] + off, *pair.results[1:]]

    monkeypatch.setattr(files, "run_onnx", lambda path: wrong)
    with pytest.raises(InputError, match=r"differs from the network by 5 pixels .* nothing written"):
        export_model(small_network(), path, size=SIDE, weights=None)
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_differences_are_weighted_by_the_confidence():
    image, flow = torch.zeros(1, 3, 1, 2), torch.zeros(1, 2, 1, 2)
    confidence = torch.tensor([0.999, 0.001]).view(1, 1, 1, 2)
    pairs = [check.Pair(image, image, (flow, confidence))] * 2
    off = torch.tensor([0.0, 5.0]).view(1, 1, 1, 2) * torch.tensor([0.6, 0.8]).view(1, 2, 1, 1)
    errors = check.compare(pairs, lambda *images: [off, confidence], half=False)
    assert errors.flow_mean == pytest.approx(0.005)
    assert errors.flow_max == pytest.approx(5.0)
    with pytest.raises(InputError, match=r"differs from the network by 4\.99 pixels"):
        check.compare(pairs, lambda *images: [off.flip(3), confidence], half=False)


def test_unknown_numbers_are_refused():
    image, flow = torch.zeros(1, 3, 1, 2), torch.zeros(1, 2, 1, 2)
    answers = iter([flow, torch.full_like(flow, torch.nan), flow])
    with pytest.raises(InputError, match="differs from the network by nan pixels"):
        check.compare([check.Pair(image, image, (flow,))] * 3, lambda *images: next(answers), half=False)


@pytest.mark.parametrize("name", ["glunet-gocor-tiny", "recurrent-gocor-tiny", "pwcnet-gocor-tiny"])
def test_working_sizes_are_those_of_the_network(name):
    side = 0 if name.startswith("pwcnet") else 352
    network = create_model(name)
    graph = MatchingGraph(network, side)
    for height in (120, 197, 352, 401, 640, 1000):
        for width in (131, 200, 353, 700, 999):
            expected = network.working_size(height, width, min_size=side, max_size=side or None)
            assert graph.working_size(torch.empty(1, 3, height, width)) == expected


def test_errors(tmp_path):
    network = small_network()
    with pytest.raises(InputError, match=r"must end in \.onnx or \.pt2"):
        export_model(network, tmp_path / "model.pth")
    with pytest.raises(InputError, match="size must be 0 or from 16 to 8192, got 8"):
        export_model(network, tmp_path / "model.onnx", size=8)
    with pytest.raises(InputError, match="cannot be exported for the images' own size"):
        export_model(network, tmp_path / "model.onnx", size=0)
    network.use_published_rules()
    with pytest.raises(InputError, match="published weights cannot be exported"):
        export_model(network, tmp_path / "model.onnx", size=SIDE)
    assert not list(tmp_path.iterdir())


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"ONNX files need onnxruntime: pip install 'gocor\[export\]'"):
        export_model(small_network(), tmp_path / "model.onnx", size=SIDE)
