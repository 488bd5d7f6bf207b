"""Matchers by name."""

import warnings

import pytest
import torch

from gocor.evaluation.named_matchers import find_matchers, find_weights
from gocor.matching import MatchOptions
from gocor.models import create_model, save_model
from gocor.models.weights import UntrainedWarning

OPTIONS = MatchOptions(align=False)
pytestmark = pytest.mark.filterwarnings("ignore::gocor.models.weights.UntrainedWarning")


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


def test_start_values_are_the_same_each_time():
    state = torch.random.get_rng_state()
    first, second = (
        find_matchers(["pwcnet-gocor-tiny"], OPTIONS, weights="none", device="cpu")[0].load() for _ in range(2)
    )
    assert first is not second
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)
