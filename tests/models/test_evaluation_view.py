"""Matching leaves a network as it is, whatever its mode and precision and however many threads match with it."""

import threading

import pytest
import torch
from torch import nn

from gocor.matching.api import match_tensors
from gocor.matching.options import MatchOptions
from gocor.models import create_model, evaluation_view
from gocor.models.evaluation_view import in_evaluation_mode, in_precision
from gocor.training.distributed import Group
from gocor.training.validation import validate
from tests.training.toy import Toy, toy_config

OPTIONS = MatchOptions(align=False, min_size=0, confidence="consistency")


@pytest.fixture
def network():
    torch.manual_seed(0)
    return create_model("glunet-gocor-tiny")


def snapshot(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def test_a_network_in_evaluation_mode_is_used_as_it_is(network):
    assert in_evaluation_mode(network) is network
    network.decoder2.train()
    assert in_evaluation_mode(network) is not network


def test_a_view_shares_the_weights(network):
    network.train()
    view = in_evaluation_mode(network)
    assert not any(module.training for module in view.modules())
    assert all(module.training for module in network.modules())
    own, seen = network.state_dict(keep_vars=True), view.state_dict(keep_vars=True)
    assert all(seen[name] is own[name] for name in own)
    network.load_state_dict({name: torch.zeros_like(value) for name, value in own.items()})
    network.decoder4.predict.bias = nn.Parameter(torch.ones(2))
    assert view.decoder4.predict.weight.abs().sum() == 0
    assert view.decoder4.predict.bias.sum() == 2
    assert view.graphs is network.graphs


def test_a_module_that_is_used_twice_is_one_module_in_the_view():
    layer = nn.BatchNorm2d(2)
    network = nn.Sequential(layer, layer).train()
    view = in_evaluation_mode(network)
    assert view[0] is view[1]
    assert view[0] is not layer


def test_threads_match_with_a_network_in_training(network):
    images = [torch.rand(2, 1, 3, 64 + 8 * i, 72) * 255 for i in range(3)]
    expected = [match_tensors(network, *pair, OPTIONS).forward for pair in images]
    network.train()
    before, found = snapshot(network), [[] for _ in images]

    def run(index: int) -> None:
        for _ in range(2):
            found[index].append(match_tensors(network, *images[index], OPTIONS).forward)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(images))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for flows, flow in zip(found, expected, strict=True):
        assert len(flows) == 2
        for other in flows:
            torch.testing.assert_close(other, flow, rtol=1e-5, atol=1e-4)
    assert all(module.training for module in network.modules())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_matching_keeps_the_mode_of_each_module(network):
    network.train()
    network.pyramid.eval()
    modes = [module.training for module in network.modules()]
    match_tensors(network, *torch.rand(2, 1, 3, 64, 72) * 255, OPTIONS)
    assert [module.training for module in network.modules()] == modes


def test_validation_leaves_the_network_as_it_is(network, tmp_path):
    network.train()
    before = snapshot(network)
    validate(network, Toy(reach=4), toy_config(tmp_path, batch=2, validation_pairs=2), Group(0, 1, torch.device("cpu")))
    assert all(module.training for module in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_view_in_another_precision_shares_the_modules(network):
    network.eval()
    view = in_precision(network, "bf16")
    assert (view.autocast_dtype, network.autocast_dtype) == (torch.bfloat16, None)
    assert all(ours is theirs for ours, theirs in zip(view.parameters(), network.parameters(), strict=True))
    assert view.pyramid is network.pyramid
    assert in_precision(view, "bf16") is view
    assert in_precision(view, None) is view  # 16 bits that a user asked for stay
    assert in_precision(view, "float32").autocast_dtype is None
    assert in_precision(network, "float32") is network


@pytest.mark.parametrize("able", [True, False])
def test_bfloat16_is_chosen_where_the_cpu_is_faster_and_the_network_as_accurate(network, able, monkeypatch):
    monkeypatch.setattr(evaluation_view, "cpu_multiplies_bfloat16", lambda: able)
    assert (in_precision(network, None) is network) != able
    assert in_precision(create_model("pwcnet-gocor-tiny"), None).autocast_dtype is None  # not known to be as accurate
    assert in_precision(network.double(), None) is network
    network.float().use_published_rules()
    assert in_precision(network, None) is network
