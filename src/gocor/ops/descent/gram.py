"""Global GOCor on correlations alone: the iteration of `reference.steepest_descent` without the filters.

Every gradient is a combination of reference and query features, so the iteration can run on the scores
S = [C(w, f^r); C(w, f^q)] and on the Gram matrix G of all features. With P = RᵀR ∗ C(w, f^q) and U = [q·r; P], the
gradient's scores are

    T = G·U + λ²S,    ⟨w, g⟩ = ⟨U, S⟩ + λ²‖w‖²,    ‖g‖² = ⟨U, T⟩ + λ²⟨w, g⟩.

Then S ← S − sα·T, P ← P − sα·RᵀR ∗ T and ‖w‖² ← ‖w‖² − 2sα⟨w, g⟩ + s²α²‖g‖². The loop is free of the channels, filters
after w⁰ are never formed, and the lower half of S is the module's output. An iteration costs one matrix product and one
RᵀR.

Without query objective every location has its own α. It is set to zero where ‖g‖² is rounding error: in a flat region G
is singular, and U does not vanish when g does.
"""

import torch
from torch import Tensor

from . import rounding
from .reference import Problem, quotient, residual_and_slope, squared_norm


def gram_descent(problem: Problem, filters: Tensor, iters: int) -> Tensor:
    """Optimise the query scores of a global correlation from the initial filters `(B, D, H, W)`.

    Returns:
        `C(w, f^q)` after `iters` iterations, `(B, Hq·Wq, H, W)`.
    """
    p, decay, dims = problem, problem.regularization, problem.step_dims
    size = filters.shape[2:]
    count = size[0] * size[1]  # reference pixels; rows of S below them belong to the query
    features = torch.cat([p.reference.flatten(2), p.query.flatten(2)], 2)  # (B, D, Nr+Nq)
    scores = torch.bmm(features.mT, filters.flatten(2)).unflatten(2, size)  # (B, Nr+Nq, H, W)
    if iters == 0:
        return scores[:, count:]
    keys = features if p.smoothing is not None else features[:, :, :count]
    gram = torch.bmm(features.mT, keys)  # (B, Nr+Nq, Nr+Nq), or only the reference's columns
    energy = squared_norm(filters, dims)
    smoothed = _smooth(p, scores[:, count:])
    settled = scores  # the same values, but the s of the last step is held constant for autograd
    for _ in range(iters):
        residual, slope = residual_and_slope(scores[:, :count], p.coefficients, p.eta)
        weights = slope * residual
        if smoothed is not None:
            weights = torch.cat([weights, smoothed], 1)
        change = torch.bmm(gram, weights.flatten(2)).unflatten(2, size) + decay * scores
        span = weights.shape[1]
        along = (weights * scores[:, :span]).sum(dims, keepdim=True) + decay * energy  # ⟨w, g⟩
        numerator = (weights * change[:, :span]).sum(dims, keepdim=True) + decay * along
        numerator = numerator.clamp(min=0)  # ‖g‖² as a difference of large terms may round below zero
        denominator = squared_norm(slope * change[:, :count], dims) + decay * numerator
        smoothed_change = _smooth(p, change[:, count:])
        if smoothed_change is not None:  # ‖R ∗ T‖² = ⟨T, RᵀR ∗ T⟩
            denominator = denominator + (change[:, count:] * smoothed_change).sum(dims, keepdim=True)
        length = quotient(numerator, denominator.clamp(min=p.floor))
        if p.smoothing is None:
            terms = torch.einsum("bkhw,bk->bhw", weights.square(), gram.diagonal(dim1=1, dim2=2)).unsqueeze(1)
            known = numerator > rounding.gradient_floor(terms.dtype) * terms
            length = torch.where(known, length, 0)
            scores = torch.where(known, scores, settled)  # otherwise the last step reached the optimum, whatever s
            settled = scores - p.step_factor.detach() * length * change
        step = p.step_factor * length
        scores = scores - step * change
        energy = (energy - step * (2 * along - step * numerator)).clamp(min=0)
        if smoothed is not None and smoothed_change is not None:
            smoothed = smoothed - step * smoothed_change
    return scores[:, count:]


def _smooth(problem: Problem, query_scores: Tensor) -> Tensor | None:
    """RᵀR ∗ query scores, both `(B, Hq·Wq, H, W)`, if there is a query objective."""
    if problem.smoothing is None:
        return None
    return problem.smoothing.twice(query_scores.unflatten(1, problem.query.shape[2:])).flatten(1, 2)
