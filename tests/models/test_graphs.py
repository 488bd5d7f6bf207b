"""Fast inference: recorded forward passes. Recording itself needs a GPU (`--device cuda`)."""

import pytest
import torch

import gocor
from gocor.models.registry import create_model
from gocor.models.weights import UntrainedWarning
from gocor.utils.precision import cpu_multiplies_bfloat16
from tests.conftest import relative_error

NAMES = ["glunet-gocor-tiny", "basenet-gocor-tiny", "pwcnet-gocor-tiny"]


def images(device, *size):
    return torch.rand(2, 1, 3, *size, device=device) * 255


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_fast_network_gives_the_same_flow(name, device):
    network = create_model(name).to(device)
    pairs = [images(device, 96, 128), images(device, 64, 64), images(device, 96, 128)]
    expected = [network(*pair) for pair in pairs]
    network.accelerate(torch.float32)
    for pair, flow in zip(pairs, expected, strict=True):
        assert relative_error(network(*pair), flow) < 1e-4
    if device.type == "cuda":
        assert len(network.graphs.recordings) == 2
    else:
        assert network.graphs is None


@torch.no_grad()
def test_new_weights_and_options_are_seen(device):
    network = create_model(NAMES[0]).to(device).accelerate(torch.float32)
    pair = images(device, 64, 64)
    first = network(*pair)
    assert relative_error(network(*pair), first) < 1e-4  # cuDNN may add up in another order
    assert relative_error(network(*pair, iters_global=0, iters_local=0), first) > 1e-6
    next(p for p in network.parameters() if p.requires_grad).mul_(1.5)
    second = network(*pair)
    network.graphs = None
    assert relative_error(second, network(*pair)) < 1e-4


def test_gradients_are_not_recorded(device):
    network = create_model(NAMES[0]).to(device).accelerate(torch.float32)
    network(*images(device, 64, 64)).sum().backward()
    assert network.graphs is None or not network.graphs.recordings


def test_few_recordings_are_kept(device):
    if device.type != "cuda":
        pytest.skip("CUDA graphs need a GPU")
    network = create_model(NAMES[2]).to(device).accelerate()
    with torch.no_grad():
        for side in (64, 128, 192, 256, 320, 64):
            network(*images(device, side, 64))
    assert len(network.graphs.recordings) == network.graphs.limit


def test_fast_is_an_option_of_load_model(device):
    with pytest.warns(UntrainedWarning):
        network = gocor.load_model(NAMES[0], None, device=device, fast=True)
    on_gpu = device.type == "cuda"
    assert (network.graphs is not None) == on_gpu
    assert network.autocast_dtype == (torch.bfloat16 if on_gpu or cpu_multiplies_bfloat16() else None)
    with pytest.raises(ValueError, match="dtype must be"):
        network.accelerate(torch.float64)


@pytest.mark.parametrize("able", [True, False])
@torch.no_grad()
def test_a_cpu_computes_in_bfloat16_if_it_can(monkeypatch, able):
    torch.manual_seed(0)
    network = create_model("recurrent-gocor-tiny")
    pair = images(torch.device("cpu"), 64, 96)
    exact = network(*pair, min_size=0)
    monkeypatch.setattr("gocor.models.network.cpu_multiplies_bfloat16", lambda: able)
    assert network.accelerate(torch.float32).autocast_dtype is None
    network.accelerate()
    flow = network(*pair, min_size=0)
    assert flow.dtype == torch.float32
    assert torch.equal(flow, exact) != able
    assert relative_error(flow, exact) < 0.05
