"""LiteFlowNet: levels, regularisation by local convolution, and start values."""

import pytest
import torch

from gocor.models import create_model
from gocor.models.liteflownet import FlowRegularizer, brightness_error
from gocor.models.registry import sketch
from gocor.modules.gocor import GOCor


def test_levels_and_facts():
    network = create_model("liteflownet-gocor-tiny")
    images = torch.rand(2, 1, 3, 64, 96)
    flows = network.levels(*images)
    assert [tuple(flow.shape[2:]) for flow in flows] == [(2, 3), (4, 6), (8, 12), (16, 24), (32, 48)]
    assert network.level_units(50, 90) == [(64, 96)] * 5
    assert [flow.shape for flow in network.levels(*images, count=2)] == [flow.shape for flow in flows[:2]]
    assert sum(isinstance(module, GOCor) for module in network.modules()) == 5
    assert {module.radius for module in sketch("liteflownet-gocor").modules() if isinstance(module, GOCor)} == {3}
    with pytest.raises(ValueError, match="no global correlation layer"):
        network.levels(*images, iters_global=3)


def test_the_size_is_about_that_of_the_paper():
    count = sum(parameter.numel() for parameter in sketch("liteflownet").parameters())
    assert count == 5_042_577  # the paper states 5.37 million


def test_regularised_flow_is_a_weighted_mean_of_its_neighbours():
    torch.manual_seed(0)
    layer = FlowRegularizer(4, (8, 8, 8), 5)
    features, error = torch.randn(1, 4, 9, 11), torch.rand(1, 1, 9, 11)
    constant = torch.tensor([2.0, -3.0]).view(1, 2, 1, 1).expand(1, 2, 9, 11)
    assert torch.allclose(layer(constant, features, error), constant, atol=1e-5)
    flow = torch.randn(1, 2, 9, 11)
    smooth = layer(flow, features, error)
    assert smooth.max() <= flow.max()
    assert smooth.min() >= flow.min()
    with torch.no_grad():
        layer.distance.weight.zero_()
        layer.distance.bias.fill_(9.0)
        layer.distance.bias[12] = 0.0  # the pixel itself
    assert torch.allclose(layer(flow, features, error), flow, atol=1e-5)


def test_brightness_error_is_zero_for_the_true_flow():
    query = torch.rand(1, 3, 12, 16)
    reference = query.roll((-1, -2), (2, 3))
    flow = torch.tensor([2.0, 1.0]).view(1, 2, 1, 1).expand(1, 2, 12, 16)
    assert brightness_error(reference, query, flow)[:, :, :-1, :-2].max() < 1e-5
    assert brightness_error(reference, query, 0 * flow).mean() > 0.1


@pytest.mark.parametrize("name", ["liteflownet-tiny", "liteflownet-gocor-tiny"])
def test_every_parameter_learns(name):
    torch.manual_seed(0)
    network = create_model(name).train()
    flows = network.levels(*torch.rand(2, 1, 3, 64, 64))
    sum(flow.square().mean() for flow in flows).backward()
    without = [key for key, value in network.named_parameters() if value.grad is None or not value.grad.abs().max() > 0]
    assert [key for key in without if "correlation" not in key] == []
