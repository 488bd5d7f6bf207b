"""The multi-level loss against sums by hand."""

import pytest
import torch

from gocor.models import create_model
from gocor.training import make_config
from gocor.training.losses import (
    CONFIDENCE_WEIGHT,
    LossRule,
    confidence_loss,
    known_pixels,
    loss_rule,
    multi_level_loss,
)


@pytest.fixture
def levels():
    """Two levels of two samples; errors are 5 (3-4-5), 0, 10 and so on, chosen by hand."""
    coarse, fine = torch.zeros(2, 2, 1, 1), torch.zeros(2, 2, 1, 2)
    true_coarse, true_fine = coarse.clone(), fine.clone()
    true_coarse[0, :, 0, 0] = torch.tensor([3.0, 4.0])  # error 5
    true_coarse[1, :, 0, 0] = torch.tensor([0.0, 1.0])  # error 1
    true_fine[0, :, 0, 1] = torch.tensor([6.0, 8.0])  # errors 0, 10
    true_fine[1, :, 0, 0] = torch.tensor([0.0, 2.0])  # errors 2, 0
    known_fine = torch.tensor([[[[True, True]]], [[[True, False]]]])
    return [coarse, fine], [(true_coarse, torch.ones(2, 1, 1, 1, dtype=torch.bool)), (true_fine, known_fine)]


def test_means(levels):
    flows, targets = levels
    counts = known_pixels(targets)
    assert counts.tolist() == [2, 3]
    loss = multi_level_loss(flows, targets, LossRule((0.25, 0.75), (1, 1)), counts)
    assert loss.item() == pytest.approx(0.25 * (5 + 1) / 2 + 0.75 * (0 + 10 + 2) / 3)


def test_published_sums(levels):
    """(1/B) Σ_samples Σ_pixels; with unknown pixels, the known ones stand in for them."""
    flows, targets = levels
    known = [(target, torch.ones_like(mask)) for target, mask in targets]
    loss = multi_level_loss(flows, known, LossRule((0.32, 0.08), (1, 1), sums=True), known_pixels(known))
    assert loss.item() == pytest.approx(0.32 * (5 + 1) / 2 + 0.08 * (0 + 10 + 2 + 0) / 2)
    loss = multi_level_loss(flows, targets, LossRule((0.32, 0.08), (1, 1), sums=True), known_pixels(targets))
    assert loss.item() == pytest.approx(0.32 * (5 + 1) / 2 + 0.08 * 2 * (0 + 10 + 2) / 3)


def test_robust(levels):
    flows, targets = levels
    rule = LossRule((1.0, 2.0), (0.4, 1), epsilon=0.01)
    loss = multi_level_loss(flows, targets, rule, known_pixels(targets))
    assert loss.item() == pytest.approx((5.01**0.4 + 1.01**0.4) / 2 + 2 * (0 + 10 + 2) / 3)


def test_losses_of_parts_add_up(levels):
    """Divided by the counts of all parts, as processes do that share a batch."""
    flows, targets = levels
    counts = known_pixels(targets)
    rule = LossRule((0.2, 0.8), (1, 0.7))
    parts = [
        multi_level_loss(
            [flow[i : i + 1] for flow in flows], [(t[i : i + 1], k[i : i + 1]) for t, k in targets], rule, counts
        )
        for i in range(2)
    ]
    assert sum(parts).item() == pytest.approx(multi_level_loss(flows, targets, rule, counts).item())


def test_confidence_loss():
    """By hand, and its parts add up although their pixels count unequally."""
    logits = torch.tensor([[1.0, -2, 0.5, 3], [2, 1, -1, 0]]).view(1, 2, 1, 4).expand(2, -1, -1, -1)
    flow, target = torch.zeros(2, 2, 1, 4), torch.zeros(2, 2, 1, 4)
    target[:, 0, 0, 1] = 2.5  # pixel 0 is right, pixel 1 is wrong, pixel 2 is hidden, pixel 3 is unknown
    visible = torch.tensor([True, True, False, False]).view(1, 1, 1, 4).repeat(2, 1, 1, 1)
    hidden = torch.tensor([False, False, True, False]).view(1, 1, 1, 4).repeat(2, 1, 1, 1)
    hidden[1] = False
    p = logits[0, :, 0].sigmoid()
    right, seen = p[0].log(), p[1].log()
    entropy = [right[0] + seen[0], (1 - p[0, 1]).log() + seen[1], (1 - p[0, 2]).log() + (1 - p[1, 2]).log()]
    count = torch.tensor(5.0)
    parts = [
        confidence_loss(*(x[i : i + 1] for x in (logits, flow, target, visible, hidden)), count).item() for i in (0, 1)
    ]
    assert parts[0] == pytest.approx(-CONFIDENCE_WEIGHT * sum(entropy).item() / 2 / 5)
    assert sum(parts) == pytest.approx(confidence_loss(logits, flow, target, visible, hidden, count).item())


def test_no_known_pixel_is_no_loss_and_a_finite_gradient(levels):
    flows, targets = levels
    flows = [flow.requires_grad_() for flow in flows]
    none = [(target, torch.zeros_like(known)) for target, known in targets]
    loss = multi_level_loss(flows, none, LossRule((1.0, 1.0), (1, 1)), known_pixels(none))
    loss.backward()
    assert loss.item() == 0
    assert all((flow.grad == 0).all() for flow in flows)


def test_weights_of_the_presets():
    basenet, pwcnet = create_model("basenet-gocor-tiny"), create_model("pwcnet-gocor-tiny")
    ours = loss_rule(make_config({"data": ["p"]}), basenet, 3)
    assert (ours.weights, ours.sums) == ((0.2, 0.3, 0.5), False)
    published = loss_rule(make_config({"data": ["p"], "loss": "published"}), basenet, 3)
    assert (published.weights, published.sums) == ((0.32, 0.08, 0.02), True)
    flow = loss_rule(make_config({"data": ["p"], "loss": "published"}), pwcnet, 5)
    assert [20 * w for w in flow.weights] == pytest.approx([0.32, 0.08, 0.02, 0.01, 0.005])
    own = loss_rule(make_config({"data": ["p"], "level_weights": [1, 2, 3]}), basenet, 3)
    assert own.weights == (1, 2, 3)
    with pytest.raises(ValueError, match="has 5 levels, level_weights has 3"):
        loss_rule(make_config({"data": ["p"], "level_weights": [1, 2, 3]}), pwcnet, 5)


def test_levels_that_do_not_count_are_left_out():
    network = create_model("glunet-gocor-tiny")
    options = {"data": ["p"], "robust_exponent": [1, 0.9, 0.8, 0.7]}
    assert loss_rule(make_config(options), network, 4).exponents == (1, 0.9, 0.8, 0.7)
    rule = loss_rule(make_config(options | {"level_weights": [0, 0.5, 0, 0]}), network, 4)
    assert rule.weights == (0, 0.5)
    assert rule.exponents == (1, 0.9)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"level_weights": [1, 2]}, "has 4 levels, level_weights has 2"),
        ({"robust_exponent": [1, 2]}, "has 4 levels, robust_exponent has 2"),
        ({"level_weights": [0, 0, 0, 0]}, "must not all be zero"),
    ],
)
def test_rules_that_do_not_fit_the_network(option, message):
    with pytest.raises(ValueError, match=message):
        loss_rule(make_config({"data": ["p"]} | option), create_model("glunet-gocor-tiny"), 4)
