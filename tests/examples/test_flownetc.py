"""`examples/flownetc.py`: a published network with plain correlation and with GOCor."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "flownetc.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("flownetc", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SIZE, module.VALIDATION_BATCHES = (64, 64), 1
    return module


def test_networks_differ_in_the_correlation_alone(example):
    mean, total, gocor = example.build_networks(0.0625).values()
    for name, value in mean.state_dict().items():
        assert torch.equal(total.state_dict()[name], value)
        assert torch.equal(gocor.state_dict()[name], value)
    extra = gocor.state_dict().keys() - mean.state_dict().keys()
    assert extra
    assert all(name.startswith("correlation.") for name in extra)


def test_the_full_network_has_the_channels_of_the_paper(example):
    with torch.device("meta"):
        net = example.FlowNetC(example.LocalFeatureCorrelation(example.RADIUS))
    assert net.down[-1][-1][0].out_channels == 1024
    assert [refinement.channels for refinement in net.refinements] == [1026, 770, 386, 194]


def test_flows_from_coarse_to_fine(example):
    net = example.build_networks(0.0625)["GOCor"]
    flows = net(*(255 * torch.rand(2, 2, 3, 128, 192)))
    assert [tuple(flow.shape) for flow in flows] == [(2, 2, 2 << i, 3 << i) for i in range(5)]


def test_errors_are_those_of_valid_cells(example):
    truth = torch.zeros(1, 2, 8, 8)
    truth[:, 0], truth[:, 1] = 3.0, 4.0
    valid = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    valid[..., 0] = False
    flow = torch.zeros(1, 2, 2, 2)
    flow[..., 0] = 1e9
    assert example.endpoint_errors(flow, truth, valid).tolist() == [5.0, 5.0]


def test_training_lowers_the_error(example, monkeypatch):
    """Of a few pairs that are seen again and again."""
    torch.manual_seed(0)
    draw = example.SyntheticPairs.batch
    monkeypatch.setattr(example.SyntheticPairs, "batch", lambda self, step, count: draw(self, step % 2, count))
    errors = example.train(example.build_networks(0.125)["GOCor"], 40, 0, "cpu")
    assert all(math.isfinite(error) for error in errors)
    first, last = sum(errors[:8]) / 8, sum(errors[-8:]) / 8
    assert last < 0.8 * first


def test_main_reports_every_layer_and_seed(example, capsys):
    results = example.main(["--steps", "1", "--seeds", "2", "--width", "0.0625"])
    assert list(results) == ["correlation, mean", "correlation, sum", "GOCor"]
    assert all(len(errors) == 2 and all(math.isfinite(error) for error in errors) for errors in results.values())
    assert len(capsys.readouterr().out.splitlines()) == 7
