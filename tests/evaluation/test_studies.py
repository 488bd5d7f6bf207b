"""Matchers by name, and the paper's studies."""

import warnings

import pytest
import torch

from gocor.evaluation import open_benchmark
from gocor.evaluation import studies as module
from gocor.evaluation.named_matchers import find_matchers, find_weights
from gocor.evaluation.studies import draw_study, run_times, study
from gocor.matching import MatchOptions
from gocor.models import create_model, save_model
from gocor.models.weights import UntrainedWarning
from gocor.modules import GlobalGOCor

from ..data.datasets.samples import write_sample

OPTIONS = MatchOptions(align=False)
pytestmark = pytest.mark.filterwarnings("ignore::gocor.models.weights.UntrainedWarning")


@pytest.fixture
def benchmarks(tmp_path):
    return open_benchmark("middlebury", write_sample("middlebury", tmp_path / "data"))


def test_matchers_by_name_and_checkpoint(tmp_path):
    network = create_model("glunet-gocor-tiny")
    save_model(network, tmp_path / "run-1.safetensors")
    names = ["identity", f"glunet-gocor-tiny:{tmp_path / 'run-1.safetensors'}", "glunet-gocor-tiny"]
    found = find_matchers(names, OPTIONS)
    assert [one.label for one in found] == ["identity", "glunet-gocor-tiny (run-1)", "glunet-gocor-tiny"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UntrainedWarning)
        loaded = found[1].load()
    assert found[1].load() is loaded  # once
    for key, value in network.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[key])
    assert found[1].note["weights"]["path"].endswith("run-1.safetensors")


def test_wrong_matchers(tmp_path):
    with pytest.raises(ValueError, match="no matcher is named 'raft'; there are identity, dis"):
        find_matchers(["raft"], OPTIONS)
    with pytest.raises(ValueError, match="identity is given twice"):
        find_matchers(["identity", "identity"], OPTIONS)
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        find_matchers(["glunet-gocor-tiny:nowhere.safetensors"], OPTIONS)
    with pytest.raises(FileNotFoundError, match=r"glunet-tiny\.safetensors"):
        find_weights("glunet-tiny", tmp_path)
    assert find_weights("glunet-tiny", "none") is None


def test_networks_get_only_the_options_that_they_have():
    options = MatchOptions(iters_global=2, iters_local=1, align=True)
    glunet, pwcnet = find_matchers(["glunet-gocor-tiny", "pwcnet-gocor-tiny"], options)
    assert glunet.options == options
    assert pwcnet.options == MatchOptions(iters_local=1, align=False)
    assert [glunet.label, pwcnet.label] == ["glunet-gocor-tiny, aligned", "pwcnet-gocor-tiny"]
    with pytest.raises(ValueError, match="with a global layer, and no such network is given"):
        find_matchers(["pwcnet-gocor-tiny"], MatchOptions(iters_global=2))
    with pytest.raises(ValueError, match="iters_local is an option of networks"):
        find_matchers(["dis"], MatchOptions(iters_local=2))


def test_iterations(benchmarks, monkeypatch):
    monkeypatch.setattr(module, "LOCAL_ITERS", (0, 2))
    monkeypatch.setattr(module, "GLOBAL_ITERS", (1,))
    both = study("iterations", ["basenet-gocor-tiny"], weights="none", device="cpu")
    assert [row.label for row in both] == [f"basenet-gocor-tiny, {n}" for n in ("0 local", "2 local", "1 global")]
    assert [row.options for row in both][2] == MatchOptions(iters_global=1, align=False)
    rows = study("iterations", ["pwcnet-gocor-tiny"], weights="none", device="cpu")
    assert [row.label for row in rows] == ["pwcnet-gocor-tiny, 0 local", "pwcnet-gocor-tiny, 2 local"]
    results = {row.label: row.evaluate(benchmarks) for row in rows}
    errors = [of["middlebury"].metrics["aepe"] for of in results.values()]
    assert len(set(errors)) == 2  # each number of iterations gives another flow
    assert rows[0].load() is rows[1].load()  # one network for all
    times = run_times(rows, benchmarks, repeats=1)
    assert [list(of) for of in times.values()] == [["middlebury"]] * 2
    assert all(0 < of["middlebury"] < 60 for of in times.values())
    assert draw_study(rows, results)["study-middlebury.png"] != draw_study(rows, results, times)["study-middlebury.png"]
    files = draw_study(rows, results, times)
    assert list(files) == ["study-middlebury.png"]
    assert files["study-middlebury.png"].startswith(b"\x89PNG")


def test_ablation_takes_checkpoints_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ABLATION", {"glunet-tiny": "I plain", "glunet-gocor-tiny": "VI"})
    for name in ("glunet-tiny", "glunet-gocor-tiny"):
        save_model(create_model(name), tmp_path / f"{name}.safetensors")
    rows = study("ablation", weights=str(tmp_path), device="cpu")
    assert [row.label for row in rows] == ["I plain (glunet-tiny)", "VI (glunet-gocor-tiny)"]
    assert [row.load().name for row in rows] == ["glunet-tiny", "glunet-gocor-tiny"]
    with pytest.raises(ValueError, match="its own models"):
        study("ablation", ["glunet-tiny"])


def test_the_papers_ablation_is_in_the_registry():
    for name in module.ABLATION:
        with torch.device("meta"):
            assert create_model(name).name == name


def test_eta(benchmarks, tmp_path):
    torch.manual_seed(1)
    trained = create_model("pwcnet-gocor-tiny")
    trained.name = "pwcnet-gocor-tiny-eta-0.1"
    save_model(trained, tmp_path / "pwcnet-gocor-tiny-eta-0.1.safetensors")
    save_model(create_model("pwcnet-gocor-tiny"), tmp_path / "pwcnet-gocor-tiny.safetensors")
    rows = study("eta", ["pwcnet-gocor-tiny"], weights=str(tmp_path), device="cpu")
    assert [row.label.removeprefix("pwcnet-gocor-tiny, ") for row in rows] == [
        "eta-0",  # as the network is
        "eta-0.05 (not retrained)",
        "eta-0.1",
        "eta-0.2 (not retrained)",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UntrainedWarning)
        made = rows[2].load()
    assert {layer.correlation.objective.eta for layer in made.matching} == {0.1}
    assert all(torch.equal(a, b) for a, b in zip(made.parameters(), trained.parameters(), strict=True))
    results = {row.label: row.evaluate(benchmarks)["middlebury"].metrics["aepe"] for row in (rows[0], rows[3])}
    assert len(set(results.values())) == 2


def test_the_networks_own_initialiser_keeps_what_it_learnt(tmp_path):
    network = create_model("basenet-gocor-tiny")
    network.global_matching.correlation.initializer.gamma.data.fill_(0.25)
    save_model(network, tmp_path / "mine.safetensors")
    rows = study("initializers", ["basenet-gocor-tiny"], weights=str(tmp_path / "mine.safetensors"), device="cpu")
    labels = [row.label.removeprefix("basenet-gocor-tiny, ") for row in rows]
    assert labels[-1] == "flexible-context"
    assert all(label.endswith(" (not retrained)") for label in labels[:-1])
    assert (rows[-1].load().global_matching.correlation.initializer.gamma == 0.25).all()


def test_start_values_are_the_same_each_time():
    state = torch.random.get_rng_state()
    first, second = (
        find_matchers(["pwcnet-gocor-tiny"], OPTIONS, weights="none", device="cpu")[0].load() for _ in range(2)
    )
    assert first is not second
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_initializers():
    rows = study("initializers", ["basenet-gocor-tiny"], weights="none", device="cpu")
    kinds = []
    for row in rows:
        layer = row.load().global_matching.correlation
        assert isinstance(layer, GlobalGOCor)
        kinds.append(type(layer.initializer).__name__)
        layer(torch.randn(1, 64, 4, 4), torch.randn(1, 64, 4, 4))
    assert kinds == ["ZeroInitializer", *["SimpleInitializer"] * 2, *["ContextInitializer"] * 2]
    assert rows[2].load().global_matching.correlation.initializer.beta.numel() == 64


def test_what_cannot_be_studied():
    with pytest.raises(ValueError, match="no study is named 'colour'; there are iterations"):
        study("colour")
    with pytest.raises(ValueError, match="glunet-tiny has no GOCor layer to study"):
        study("iterations", ["glunet-tiny"])
    with pytest.raises(ValueError, match="pwcnet-gocor-tiny has no global GOCor layer"):
        study("initializers", ["pwcnet-gocor-tiny"])
