"""Parameter groups, schedule, moving average."""

import pytest
import torch
from torch import nn

from gocor.models import create_model
from gocor.modules import LocalGOCor
from gocor.training import make_config
from gocor.training.optimizer import build_optimizer, parameter_groups, take_step, update_average
from gocor.training.schedule import ema_weight, fraction_done, learning_rate


def test_what_decays_and_what_does_not():
    network = create_model("basenet-gocor-tiny")
    names = {id(p): name for name, p in network.named_parameters()}
    decayed, others = ({names[id(p)] for p in group["params"]} for group in parameter_groups(network, 0.1))
    assert [group["weight_decay"] for group in parameter_groups(network, 0.1)] == [0.1, 0.0]
    assert decayed | others == {name for name, p in network.named_parameters() if p.requires_grad}
    assert not decayed & others
    assert not any(name.startswith("pyramid.") for name in decayed | others)
    assert all("matching" not in name and name.endswith("weight") for name in decayed)
    assert "decoder4.convs.0.0.weight" in decayed
    for name in ("decoder4.convs.0.0.bias", "decoder4.convs.0.1.weight", "decoder4.convs.0.1.bias"):
        assert name in others
    gocor = {names[id(p)] for m in network.modules() if isinstance(m, LocalGOCor) for p in m.parameters()}
    assert len(gocor) >= 5
    assert gocor <= others


def test_a_skipped_step_changes_nothing():
    layer = nn.Linear(3, 2)
    lr = torch.tensor(0.1)
    optimizer = build_optimizer(layer, make_config({"data": ["p"]}), lr)
    start = layer.weight.detach().clone()
    for gradient, skip in ((float("nan"), 1.0), (1.0, 0.0)):
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        take_step(optimizer, skip=torch.tensor(skip))
        if skip:
            torch.testing.assert_close(layer.weight.detach(), start, rtol=0, atol=0)
            assert all(not value.any() for value in optimizer.state[layer.weight].values())
    # AdamW's first step has the length of the rate, whatever the gradient; decay comes on top.
    torch.testing.assert_close(layer.weight.detach(), start * (1 - 0.1 * 1e-4) - 0.1, rtol=1e-5, atol=1e-5)
    lr.fill_(0.0)
    before = layer.weight.detach().clone()
    take_step(optimizer, skip=torch.tensor(0.0))
    torch.testing.assert_close(layer.weight.detach(), before, rtol=0, atol=0)  # it reads the tensor, not a copy


def test_one_cycle():
    config = make_config({"data": ["p"], "lr": 1.0, "warmup": 0.2})
    assert learning_rate(0.0, config) == pytest.approx(0.04)
    assert learning_rate(0.1, config) == pytest.approx(0.52)
    assert learning_rate(0.2, config) == pytest.approx(1.0)
    assert learning_rate(0.6, config) == pytest.approx(0.5005)
    assert learning_rate(1.0, config) == pytest.approx(0.001)


def test_constant_and_multi_step():
    constant = make_config({"data": ["p"], "lr": 2.0, "schedule": "constant", "warmup": 0})
    assert [learning_rate(share, constant) for share in (0.0, 0.5, 1.0)] == [2.0] * 3
    steps = make_config(
        {"data": ["p"], "lr": 2.0, "schedule": "multi-step", "warmup": 0, "milestones": [0.5, 0.75], "gamma": 0.1}
    )
    rates = [learning_rate(share, steps) for share in (0.0, 0.49, 0.5, 0.75, 1.0)]
    assert rates == pytest.approx([2.0, 2.0, 0.2, 0.02, 0.02])


def test_progress_by_steps_or_by_time():
    config = make_config({"data": ["p"], "steps": 100, "time_limit": 2})
    assert fraction_done(25, 90, config) == 0.25
    timed = make_config({"data": ["p"], "steps": 100, "time_limit": 2, "schedule_by": "time"})
    assert fraction_done(25, 90, timed) == 0.75
    assert fraction_done(80, 90, timed) == 0.8
    assert fraction_done(10, 500, timed) == 1.0


def test_moving_average():
    average, value = [torch.tensor([1.0, 2.0])], [torch.tensor([3.0, 2.0])]
    update_average(average, value, torch.tensor(0.25))
    assert average[0].tolist() == [1.5, 2.0]
    assert value[0].tolist() == [3.0, 2.0]
    assert ema_weight(0, 0.999) == pytest.approx(0.9)
    assert ema_weight(10**6, 0.999) == pytest.approx(0.001)
    assert ema_weight(5, 0.0) == 1.0  # no average: a copy
