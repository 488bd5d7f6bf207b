"""The multi-level end-point error loss."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..models.network import MatchingNetwork
from ..models.outputs import RIGHT_WITHIN
from ..utils.errors import InputError
from .config import TrainConfig

CONFIDENCE_WEIGHT = 0.2  # weight of the confidence's loss; that of the flow has weight 1


@dataclass(frozen=True)
class LossRule:
    """How the pixels' errors are combined to one loss.

    Attributes:
        weights: weights of the levels, coarse to fine.
        exponents: q of the robust penalty (e + ε)^q at each level; 1 is the end-point error e itself.
        sums: multiply the mean over a level's known pixels by the number of its pixels, which is the paper's sum over
            pixels with unknown pixels at the mean error.
        epsilon: ε of the robust penalty.
    """

    weights: tuple[float, ...]
    exponents: tuple[float, ...]
    sums: bool = False
    epsilon: float = 0.01


def loss_rule(config: TrainConfig, network: MatchingNetwork, levels: int) -> LossRule:
    """The loss rule of a run, up to the finest level that has a weight."""
    published = config.loss == "published"
    weights = network.published_loss_weights if published else network.loss_weights
    if not weights and not config.level_weights:
        raise InputError(f"{network.name} has no loss weights for its levels: set level_weights")
    if config.level_weights:
        if len(config.level_weights) != levels:
            raise InputError(f"{network.name} has {levels} levels, level_weights has {len(config.level_weights)}")
        weights = config.level_weights
    exponents = config.robust_exponent
    if len(exponents) == 1:
        exponents *= levels
    elif len(exponents) != levels:
        raise InputError(f"{network.name} has {levels} levels, robust_exponent has {len(exponents)}")
    count = max((i for i, weight in enumerate(weights, 1) if weight), default=0)
    if not count:
        raise InputError("level_weights must not all be zero")
    return LossRule(weights[:count], exponents[:count], published, config.robust_epsilon)


def end_point_error(flow: Tensor, target: Tensor) -> Tensor:
    """End-point error ‖flow − target‖ of flows `(B, 2, H, W)`: `(B, 1, H, W)`, in float32 or wider."""
    difference = flow.to(torch.promote_types(flow.dtype, torch.float32)) - target
    return torch.linalg.vector_norm(difference, dim=1, keepdim=True)


def multi_level_loss(
    flows: Sequence[Tensor], targets: Sequence[tuple[Tensor, Tensor]], rule: LossRule, counts: Tensor
) -> Tensor:
    """Σ_level weight · mean over known pixels of (e + ε)^q, times the level's number of pixels if `rule.sums`.

    Args:
        flows: flows of the levels, `(B, 2, h, w)`.
        targets: for each level, the true flow `(B, 2, h, w)` and the mask of known pixels `(B, 1, h, w)` bool.
        rule: weights and penalty.
        counts: number of known pixels of each level, `(levels,)`. With the counts over all processes, the sum of the
            processes' losses is the loss of the whole batch.
    """
    loss = flows[0].new_zeros((), dtype=torch.float32)
    for flow, (target, known), weight, exponent, count in zip(
        flows, targets, rule.weights, rule.exponents, counts.unbind(), strict=True
    ):
        error = end_point_error(flow, target)
        if exponent != 1:
            error = (error + rule.epsilon) ** exponent
        scale = weight * (flow.shape[2] * flow.shape[3] if rule.sums else 1)
        # Unknown pixels are masked by `where`, because 0 · NaN would be NaN; NaN at a known pixel must show.
        loss = loss + scale * torch.where(known, error, 0.0).sum() / count.clamp(min=1)
    return loss


def confidence_loss(
    logits: Tensor, flow: Tensor, target: Tensor, visible: Tensor, hidden: Tensor, count: Tensor
) -> Tensor:
    """Cross-entropy between the predicted probabilities of a right match and of a visible pixel, and what is true.

    A match is right if the query shows the pixel and the flow is at most `RIGHT_WITHIN` pixels off.

    Args:
        logits: logits of the probabilities that the match is right and that the query shows the pixel, `(B, 2, H, W)`.
        flow: the estimate `(B, 2, H, W)`, in the same pixels as the target.
        target: true flow `(B, 2, H, W)`.
        visible: pixels that the query shows, `(B, 1, H, W)` bool.
        hidden: pixels that it does not show, likewise; pixels that are neither do not count.
        count: number of pixels that are either, over all processes; see `multi_level_loss`.
    """
    with torch.no_grad():
        right = visible & (end_point_error(flow, target) <= RIGHT_WITHIN)
        truth, known = torch.cat([right, visible], 1).float(), visible | hidden
    entropy = F.binary_cross_entropy_with_logits(logits.float(), truth, reduction="none").mean(1, keepdim=True)
    return CONFIDENCE_WEIGHT * torch.where(known, entropy, 0.0).sum() / count.clamp(min=1)


def known_pixels(targets: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Number of known pixels of each level: `(levels,)` float32."""
    return torch.stack([known.sum(dtype=torch.float32) for _, known in targets])
