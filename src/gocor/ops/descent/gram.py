"""Steepest descent on correlations alone: the same iteration as `descent.steepest_descent`, without the filters.

Every gradient is a combination of reference and query features, so the iteration can run on the scores
S = [C(w, f^r); C(w, f^q)] and on the Gram matrix G of all features. With P = RᵀR ∗ C(w, f^q) and U = [q·r; P], the
gradient's scores are

    T = G·U + λ²S,    ⟨w, g⟩ = ⟨U, S⟩ + λ²‖w‖²,    ‖g‖² = ⟨U, T⟩ + λ²⟨w, g⟩,

then S ← S − sα·T, P ← P − sα·RᵀR ∗ T and ‖w‖² ← ‖w‖² − 2sα⟨w, g⟩ + s²α²‖g‖². D is gone from the loop, the filters
after w⁰ are never formed, and the lower half of S is the module's output. One matrix product and one RᵀR per iteration.

Without query term every location has an α of its own, which is 0 where ‖g‖² is but the rounding of g: in a flat region
G is singular, and U does not vanish when g does.
"""

import torch
from torch import Tensor

from ...modules.objective import residual_and_slope
from . import rounding
from .reference import Problem, squared_norm, step_length
from .smoothing import smooth_twice


def gram_descent(problem: Problem, filters: Tensor, iters: int) -> Tensor:
    """Optimise the query scores of a global correlation from the initial filters `(B, D, H, W)`.

    Returns:
        `C(w, f^q)` after `iters` iterations, `(B, Hq·Wq, H, W)`.
    """
    p, weight_decay, dims = problem, problem.regularization, problem.dims
    size = filters.shape[2:]
    count = size.numel()  # reference pixels; rows of S below them belong to the query
    features = torch.cat([p.reference.flatten(2), p.query.flatten(2)], 2)  # (B, D, Nr+Nq)
    scores = torch.bmm(features.mT, filters.flatten(2)).unflatten(2, size)  # (B, Nr+Nq, H, W)
    if iters == 0:
        return scores[:, count:]
    keys = features if p.regularizer is not None else features[:, :, :count]
    gram = torch.bmm(features.mT, keys)  # (B, Nr+Nq, Nr+Nq), or only the reference's columns
    energy, coefficients = squared_norm(filters, dims), p.maps.coefficients()
    smoothed = _smooth(p, scores[:, count:])
    settled = scores  # the same, s of the last step held constant
    for _ in range(iters):
        residual, slope = residual_and_slope(scores[:, :count], coefficients, p.eta)
        pull = slope * residual
        if smoothed is not None:
            pull = torch.cat([pull, smoothed], 1)
        change = torch.bmm(gram, pull.flatten(2)).unflatten(2, size) + weight_decay * scores
        span = pull.shape[1]
        along = (pull * scores[:, :span]).sum(dims, keepdim=True) + weight_decay * energy  # ⟨w, g⟩
        numerator = (pull * change[:, :span]).sum(dims, keepdim=True) + weight_decay * along
        numerator = numerator.clamp(min=0)  # ‖g‖² as a difference of large terms may round below zero
        denominator = squared_norm(slope * change[:, :count], dims) + weight_decay * numerator
        smoothed_change = _smooth(p, change[:, count:])
        if smoothed_change is not None:  # ‖R ∗ T‖² = ⟨T, RᵀR ∗ T⟩
            denominator = denominator + (change[:, count:] * smoothed_change).sum(dims, keepdim=True)
        length = step_length(numerator, denominator, p.floor)
        if p.regularizer is None:
            terms = torch.einsum("bkhw,bk->bhw", pull.square(), gram.diagonal(dim1=1, dim2=2)).unsqueeze(1)
            known = numerator > rounding.of_gradient(terms.dtype) * terms
            length = torch.where(known, length, 0)
            scores = torch.where(known, scores, settled)  # else the last step led to an optimum, for every s nearby
            settled = scores - p.step_factor.detach() * length * change
        step = p.step_factor * length
        scores = scores - step * change
        energy = (energy - step * (2 * along - step * numerator)).clamp(min=0)
        if smoothed is not None and smoothed_change is not None:
            smoothed = smoothed - step * smoothed_change
    return scores[:, count:]


def _smooth(problem: Problem, query_scores: Tensor) -> Tensor | None:
    """RᵀR ∗ query scores, `(B, Hq·Wq, H, W)` both, where the objective has a query term."""
    if problem.regularizer is None:
        return None
    size = problem.query.shape[2:]
    return smooth_twice(problem.regularizer, query_scores.unflatten(1, size)).flatten(1, 2)


# Multiply-adds that an accelerator does in the time of the kernel launches that the Gram form saves.
LAUNCHES = 4e9


def gram_is_cheaper(reference: Tensor, query: Tensor, iters: int, query_term: bool) -> bool:
    """Whether the Gram form takes less time than the filters' form (see `docs/performance.md`).

    Counts multiply-adds of the matrix products; the rest costs the same in both.
    """
    batch, d = reference.shape[:2]
    n, m = reference.shape[2:].numel(), query.shape[2:].numel()
    pull = n + m if query_term else n  # rows of U
    on_filters = d * n * ((n + m) + iters * 2 * pull)
    on_scores = d * n * (n + m) + d * (n + m) * pull + iters * n * (n + m) * pull
    allowance = 0 if reference.device.type == "cpu" else LAUNCHES
    return batch * on_scores < batch * on_filters + allowance
