"""The multi-level end-point error."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.network import MatchingNetwork
from .config import TrainConfig


@dataclass(frozen=True)
class LossRule:
    """How errors of pixels become one number.

    Attributes:
        weights: of the levels, coarse to fine.
        exponents: q of (e + ε)^q at each level; 1 for the error e itself.
        sums: whether a level counts by the sum over its pixels (of one sample, known pixels standing in for unknown
            ones) or by their mean.
        epsilon: ε of the same.
    """

    weights: tuple[float, ...]
    exponents: tuple[float, ...]
    sums: bool = False
    epsilon: float = 0.01


def loss_rule(config: TrainConfig, network: MatchingNetwork, levels: int) -> LossRule:
    """The rule that a run asks for, up to the finest level that counts."""
    published = config.loss == "published"
    weights = network.published_loss_weights if published else network.loss_weights
    if not weights and not config.level_weights:
        raise ValueError(f"{network.name} states no weights of its levels' losses: set level_weights")
    if config.level_weights:
        if len(config.level_weights) != levels:
            raise ValueError(f"{network.name} has {levels} levels, level_weights has {len(config.level_weights)}")
        weights = config.level_weights
    exponents = config.robust_exponent
    if len(exponents) == 1:
        exponents *= levels
    elif len(exponents) != levels:
        raise ValueError(f"{network.name} has {levels} levels, robust_exponent has {len(exponents)}")
    count = max((i for i, weight in enumerate(weights, 1) if weight), default=0)
    if not count:
        raise ValueError("level_weights must not all be zero")
    return LossRule(weights[:count], exponents[:count], published, config.robust_epsilon)


def end_point_error(flow: Tensor, target: Tensor) -> Tensor:
    """‖flow − target‖ of every pixel: `(B, 2, H, W)` twice → `(B, 1, H, W)`, float32 or wider."""
    difference = flow.to(torch.promote_types(flow.dtype, torch.float32)) - target
    return torch.linalg.vector_norm(difference, dim=1, keepdim=True)


def multi_level_loss(
    flows: Sequence[Tensor], targets: Sequence[tuple[Tensor, Tensor]], rule: LossRule, counts: Tensor
) -> Tensor:
    """Σ_level weight · mean over known pixels of (e + ε)^q, or · pixels of a sample where the rule says sums.

    Args:
        flows: of the levels, `(B, 2, h, w)`.
        targets: true flow `(B, 2, h, w)` and where it is known, `(B, 1, h, w)` bool, for each level.
        rule: weights and form.
        counts: known pixels of each level, `(levels,)`. They may be those of several processes' pairs together, so
            that the sum of their losses is the loss of all pairs.
    """
    loss = flows[0].new_zeros((), dtype=torch.float32)
    for flow, (target, known), weight, exponent, count in zip(
        flows, targets, rule.weights, rule.exponents, counts.unbind(), strict=True
    ):
        error = end_point_error(flow, target)
        if exponent != 1:
            error = (error + rule.epsilon) ** exponent
        scale = weight * (flow.shape[2] * flow.shape[3] if rule.sums else 1)
        # An unknown pixel adds nothing; a network's NaN must not pass through it either, but one elsewhere must.
        loss = loss + scale * torch.where(known, error, 0.0).sum() / count.clamp(min=1)
    return loss


def known_pixels(targets: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """How many pixels of each level have a target: `(levels,)` float32."""
    return torch.stack([known.sum(dtype=torch.float32) for _, known in targets])
