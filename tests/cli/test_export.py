"""`gocor export`: what it refuses before any work; `tests/export` tests the files."""

import json

import pytest

from gocor.export import Exported
from gocor.export.check import Errors

from .test_cli import runner


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


def test_it_prints_the_differences(run, tmp_path, monkeypatch):
    path, calls = tmp_path / "model.onnx", []

    def export_model(network, path, **options):
        calls.append((network.name, path, options))
        path.write_bytes(b"graph")
        return Exported(path, 2_500_000, Errors(0.00123, 0.0456, 0.0), {})

    monkeypatch.setattr("gocor.export.export_model", export_model)
    code, out, err = run("export", "basenet-gocor", "-o", path, "--half", "--size", "256")
    assert (code, err) == (0, "")
    assert out == f"differs from the network by 0.0012 pixels on average, 0.046 at most\nwrote {path}, 2.5 MB\n"
    assert calls == [("basenet-gocor", path, {"size": 256, "half": True, "weights": "default"})]
    assert run("export", "basenet-gocor", "-o", path) == (
        1,
        "",
        f"gocor: {path} exists already: --overwrite replaces it\n",
    )
    assert len(calls) == 1
    code, out, err = run("export", "basenet-gocor", "-o", path, "--overwrite", "--json")
    assert (code, err) == (0, "")
    differences = {"flow_mean": 0.00123, "flow_max": 0.0456, "probability_mean": 0.0}
    assert json.loads(out) == {"file": str(path), "bytes": 2_500_000, "differences": differences, "metadata": {}}


@pytest.mark.parametrize(
    ("model", "target", "message"),
    [
        ("basenet-gocor", "model.pth", "must end in .onnx or .pt2"),
        ("basenet-gocor", "gone/model.onnx", "does not exist: create the folder first"),
        ("gone", "model.onnx", "no model is named 'gone'"),
    ],
)
def test_errors(run, tmp_path, model, target, message):
    code, out, err = run("export", model, "-o", tmp_path / target)
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
