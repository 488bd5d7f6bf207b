"""`gocor.bench` and `gocor bench`: what is timed, how, and what is told about it."""

import json

import pytest
import torch

from gocor.bench import SECTIONS, Case, Measurement, Settings, Table, TableResult, Work, measure, peak_memory
from gocor.bench.report import as_rich, digits
from gocor.bench.sections import tables
from gocor.bench.work import end_point_errors
from gocor.models import list_models
from gocor.models.glunet import GLUNet

from ..cli.test_cli import runner

CPU = torch.device("cpu")
TINY = Table("tiny", [Case("layers", {"plain": Work("layer", "plain", (6, 8), channels=4),
                                      "GOCor": Work("layer", "gocor", (6, 8), channels=4)})])  # fmt: skip


@pytest.fixture
def run(monkeypatch, capfd):
    monkeypatch.setitem(SECTIONS, "modules", lambda scale: [TINY])
    monkeypatch.setattr("gocor.bench.run.peak_memory", lambda *_: 2.5)
    return runner(monkeypatch, capfd)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("scale", ["full", "cpu", "quick"])
def test_sections_name_networks_that_exist(section, scale):
    for table in SECTIONS[section](scale):
        assert len({case.name for case in table.cases}) == len(table.cases)
        for case in table.cases:
            assert list(case.variants) == list(table.cases[0].variants)
            assert next(iter(case.variants)) == "plain"
            for name, work in case.variants.items():
                assert work.name in (["plain", "gocor"] if work.kind == "layer" else list_models())
                assert work.name.endswith("gocor") == name.startswith("GOCor")


def test_quick_is_small():
    def pixels(scale):
        works = [w for s in SECTIONS.values() for t in s(scale) for c in t.cases for w in c.variants.values()]
        return max(work.batch * work.size[0] * work.size[1] for work in works if work.kind != "layer")

    assert pixels("quick") <= 256 * 256 < pixels("cpu") < pixels("full")


def test_a_network_is_timed_from_images_to_flow():
    flow = Work("network", "pwcnet-gocor-tiny", (60, 70), batch=2, iters_local=1).build(CPU)()
    assert flow.shape == (2, 2, 60, 70)
    assert not flow.requires_grad


def test_more_iterations_change_the_flow():
    one, three = (Work("network", "pwcnet-gocor-tiny", (64, 64), iters_local=n).build(CPU)() for n in (1, 3))
    assert not torch.equal(one, three)


def test_a_network_that_learns_its_confidence_gives_it():
    work = Work("network", "recurrent-gocor-tiny", (32, 48), updates=2, options=(("fine", True),))
    found = work.build(CPU)()
    assert found.flow.shape == (1, 2, 32, 48)
    assert found.confidence.shape == (1, 1, 32, 48)
    more = Work("network", "recurrent-gocor-tiny", (32, 48), updates=3, options=(("fine", True),)).build(CPU)()
    assert not torch.equal(found.flow, more.flow)


def test_a_network_works_in_the_dtype(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "gocor.bench.work.load_model", lambda name, weights, *, options, device, dtype: seen.append(dtype) or torch.add
    )
    Work("network", "pwcnet", (64, 64), dtype="bfloat16").build(CPU)
    assert seen == [torch.bfloat16]


def test_a_layer_forward_and_backward():
    volume = Work("layer", "plain", (6, 8), channels=4, radius=2).build(CPU)()
    assert volume.shape == (1, 25, 6, 8)
    gradients = Work("layer", "gocor", (6, 8), channels=4, iters_local=2, backward=True).build(CPU)()
    assert [g.shape for g in gradients[:2]] == [(1, 4, 6, 8)] * 2
    assert len(gradients) == 2 + 6  # initialiser, three distance functions, regulariser, step
    assert all(g.abs().sum() > 0 for g in gradients)


def test_a_training_step_fills_every_gradient(monkeypatch):
    from gocor.bench import work

    loaded = []
    load = work.load_model
    monkeypatch.setattr(work, "load_model", lambda *a, **k: loaded.append(load(*a, **k)) or loaded[0])
    Work("training", "pwcnet-gocor-tiny", (64, 64), iters_local=1).build(CPU)()
    assert loaded[0].training
    assert all(p.grad is not None for p in loaded[0].parameters() if p.requires_grad)


def test_end_point_errors():
    flows = [torch.tensor([[[[4.0]], [[5.0]]]]), torch.ones(1, 2, 3, 3)]
    assert end_point_errors(flows) == 5  # (3, 4) and nothing


def test_memory_grows_with_the_work():
    small, large = (Work("layer", "plain", (side, side), channels=32) for side in (16, 512))
    bytes_needed = (2 * 32 + 81) * 512 * 512 * 4
    found = peak_memory(large, CPU, threads=1)
    assert bytes_needed / 2**20 < found < 5 * bytes_needed / 2**20
    assert peak_memory(small, CPU, threads=1) < 30


def results():
    rows = [{"plain": Measurement(2.0, 10.0), "GOCor": Measurement(3.0, 20.0)},
            {"plain": Measurement(8.0, 40.0), "GOCor": Measurement(12.0, None)}]  # fmt: skip
    cases = [Case(name, {"plain": TINY.cases[0].variants["plain"], "GOCor": TINY.cases[0].variants["GOCor"]})
             for name in ("small", "large")]  # fmt: skip
    return TableResult(Table("growth", cases, growth=True), rows)


def test_ratios_and_growth():
    small, large = results().as_json()["rows"]
    assert small["variants"]["GOCor"] == {"ms": 3.0, "ratio": 1.5, "peak_mib": 20.0}
    assert large["variants"]["GOCor"]["ms_growth"] == 4
    assert large["variants"]["GOCor"]["peak_mib_growth"] is None
    assert large["variants"]["plain"]["peak_mib_growth"] == 4


def test_what_a_table_shows():
    columns = [list(column.cells) for column in as_rich(results()).columns]
    assert columns == [["small", "large"], ["2", "8"], ["3", "12"], ["1.5", "1.5"], ["10", "40"], ["20", "–"],
                       ["", "4"], ["", "–"]]  # fmt: skip
    assert [digits(x) for x in (0.12345, 12.345, 1234.5)] == ["0.123", "12.3", "1234"]


def test_a_case_that_does_not_fit_in_memory_is_reported(monkeypatch):
    def build(self, device):
        raise torch.OutOfMemoryError("too large")

    monkeypatch.setattr(Work, "build", build)
    result = measure(TINY, Settings(CPU, repeats=1))
    assert result.rows[0]["plain"] == Measurement(None, None)
    assert next(iter(as_rich(result).columns[1].cells)) == "no memory"


def test_command(run, tmp_path):
    file = tmp_path / "bench.json"
    code, out, err = run("bench", "modules", "--device", "cpu", "--repeats", 2, "--threads", 1, "--json", file)
    assert (code, err) == (0, "")
    assert f"torch {torch.__version__}, " in out
    assert "threads 1" in out
    assert f"wrote {file}" in out
    found = json.loads(file.read_text())
    assert found["torch"] == torch.__version__
    assert (found["dtype"], found["threads"], found["repeats"], found["scale"]) == ("float32", 1, 2, "cpu")
    row = found["sections"]["modules"][0]["rows"][0]
    assert row["case"] == "layers"
    assert row["variants"]["GOCor"]["ms"] > 0
    assert row["variants"]["GOCor"]["peak_mib"] == 2.5
    assert row["variants"]["GOCor"]["ratio"] == row["variants"]["GOCor"]["ms"] / row["variants"]["plain"]["ms"]


def test_command_without_memory(run, tmp_path):
    assert run("bench", "modules", "--device", "cpu", "--no-memory", "--json", tmp_path / "bench.json")[0] == 0
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["sections"]["modules"][0]["rows"][0]["variants"]["plain"]["peak_mib"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["nothing"],
            "no section is named 'nothing'; there are networks, recurrent, modules, training, scaling, match",
        ),
        (["--quick", "--full"], "--quick and --full cannot be combined"),
        (["--json", "nowhere/bench.json"], "nowhere does not exist: create the folder first"),
        (["--device", "meta"], "device 'meta' cannot be used here: its tensors hold no values"),
    ],
)
def test_command_fails_in_one_line(run, arguments, message):
    assert run("bench", *arguments) == (1, "", f"gocor: {message}\n")


def test_recorded_work_comes_with_a_gpu():
    for section in SECTIONS:
        plain, both = (tables(section, "quick", "bfloat16", recorded=recorded) for recorded in (False, True))
        extra = both[len(plain) :]
        assert both[: len(plain)] == plain
        assert len(extra) == (len(plain) if section in ("networks", "recurrent", "training") else 0)
        for table in extra:
            assert table.title.endswith("as CUDA graphs")
            assert all(w.recorded and w.dtype == "bfloat16" for c in table.cases for w in c.variants.values())


@pytest.mark.parametrize("kind", ["network", "training"])
def test_recorded_work_without_a_gpu_is_plain(kind, device):
    work = Work(kind, "pwcnet-gocor-tiny", (64, 64), recorded=True)
    results = []
    for _ in range(2):
        torch.manual_seed(0)  # of the network's start values
        results.append(work.build(device)())
    first, second = results
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-3)


def test_networks_work_at_the_size_that_is_named(monkeypatch):
    """GLU-Net would enlarge small images, and hide how its time grows with them."""
    seen, original = [], GLUNet.round_size
    monkeypatch.setattr(GLUNet, "round_size", lambda self, *size: seen.append(size) or original(self, *size))
    Work("network", "glunet-gocor-tiny", (256, 300)).build(torch.device("cpu"))()
    assert seen == [(256, 300)]
