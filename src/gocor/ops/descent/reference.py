"""Steepest descent with the exact Gauss–Newton step (paper, eq. 8 and algorithm 1): the specification of every form.

With r the residual of the reference objective, q = ∂r/∂C, and ρ = R ∗ C(w, f^q), one iteration is

    g = Cᵀ(q·r, f^r) + Cᵀ(Rᵀρ, f^q) + λ²w
    α = ‖g‖² / (‖q·C(g, f^r)‖² + ‖R ∗ C(g, f^q)‖² + λ²‖g‖²)
    w ← w − s·α·g

The reference objective and the regulariser separate over locations. Without the query objective every location
therefore has its own α, the exact line minimum; with it there is one α per sample. (The paper writes one α throughout;
published code does it this way.) s is a learnt factor that the paper does not mention. Correlations are linear in the
filters, so scores are updated together with the filters and never recomputed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .smoothing import QuerySmoothing


class Coefficients(NamedTuple):
    """Coefficients of the residual r = a·|c| + l·c − t by score c: a = v⁺(1 − m)/2, l = v⁺(1 + m)/2 and t = v⁺y′."""

    absolute_gain: Tensor
    linear_gain: Tensor
    weighted_target: Tensor


@dataclass(frozen=True)
class Problem:
    """One pair of feature maps and one objective.

    Attributes:
        reference: features `(B, D, H, W)`.
        query: features `(B, D, H′, W′)`.
        coefficients: coefficients of the reference objective, broadcastable to the scores `(B, K, H, W)`.
        eta: η of the robust function.
        regularization: λ², `(1, 1, 1, 1)` or one value per sample, `(B, 1, 1, 1)`.
        step_factor: s, a scalar tensor.
        floor: lower bound of α's denominator.
        correlate: C(filters, features), `(B, D, H, W)` × features → `(B, K, H, W)`.
        adjoint: the adjoint of C in the filters, `(B, K, H, W)` × features → `(B, D, H, W)`.
        smoothing: R, if there is a query objective.
    """

    reference: Tensor
    query: Tensor
    coefficients: Coefficients
    eta: float
    regularization: Tensor
    step_factor: Tensor
    floor: float
    correlate: Callable[[Tensor, Tensor], Tensor]
    adjoint: Callable[[Tensor, Tensor], Tensor]
    smoothing: QuerySmoothing | None

    @property
    def step_dims(self) -> tuple[int, ...]:
        """Dimensions of scores and filters that share one step length."""
        return (1,) if self.smoothing is None else (1, 2, 3)


class State(NamedTuple):
    """An iteration, for observers: its filters and scores, and the step that follows (`None` after the last)."""

    filters: Tensor
    scores: Tensor
    residual: Tensor
    smoothed: Tensor | None
    step: Tensor | None = None
    gradient: Tensor | None = None
    change: Tensor | None = None


def residual_and_slope(scores: Tensor, coefficients: Coefficients, eta: float) -> tuple[Tensor, Tensor]:
    """Residual r = v⁺(σ_η(c; m) − y′) of the reference objective (paper, eq. 4 and 5), and its slope ∂r/∂c.

    `σ_η(c; m) = (1−m)/2 · (√(c²+η²) − η) + (1+m)/2 · c`. With η = 0 this is c for c ≥ 0 and m·c for c < 0; its
    derivative at zero is (1+m)/2. (The appendix makes the derivative depend on C − y, against its own eq. 4 and against
    published code: it depends on C.)
    """
    absolute_gain, linear_gain, weighted_target = coefficients
    if eta == 0:  # |c| = sign(c)·c, so the slope also gives the residual, in fewer passes over the scores
        slope = absolute_gain * scores.sign() + linear_gain
        return slope * scores - weighted_target, slope
    root = (scores.square() + eta * eta).sqrt()
    residual = absolute_gain * (root - eta) + linear_gain * scores - weighted_target
    return residual, absolute_gain * (scores / root) + linear_gain


def squared_norm(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Sum of squares over some dimensions, which are kept."""
    return x.square().sum(dims, keepdim=True)


def quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """`numerator / denominator`, with a gradient that does not overflow where both are tiny.

    Autograd multiplies the gradient by `numerator / denominator²`. Of features with a norm of 1e-5 that is infinite in
    float32, although the product is not. With c the denominator's value, held constant, the factors of
    `(numerator / c)·(c / denominator)` are applied one after the other. The result has the same bits, since the second
    factor is one, and derivatives of every order are the same.
    """
    if not denominator.requires_grad:
        return numerator / denominator
    constant = denominator.detach().clamp(max=torch.finfo(denominator.dtype).max)  # ∞/∞ would not be one
    return (numerator / constant) * (constant / denominator)


def steepest_descent(
    problem: Problem, filters: Tensor, iters: int, observe: Callable[[State], object] | None = None
) -> Tensor:
    """Optimise a filter map.

    Args:
        problem: what to minimise.
        filters: w⁰ `(B, D, H, W)`.
        iters: number of iterations.
        observe: called before the update of each iteration, and once after the last.

    Returns:
        The filters after `iters` iterations, `(B, D, H, W)`.
    """
    p, decay, dims = problem, problem.regularization, problem.step_dims
    if iters == 0 and observe is None:
        return filters
    scores = p.correlate(filters, p.reference)
    smoothed = p.smoothing(p.correlate(filters, p.query)) if p.smoothing is not None else None
    for _ in range(iters):
        residual, slope = residual_and_slope(scores, p.coefficients, p.eta)
        gradient = p.adjoint(slope * residual, p.reference) + decay * filters
        if p.smoothing is not None and smoothed is not None:
            gradient = gradient + p.adjoint(p.smoothing.adjoint(smoothed), p.query)
        change = p.correlate(gradient, p.reference)
        numerator = squared_norm(gradient, dims)
        denominator = squared_norm(slope * change, dims) + decay * numerator
        if p.smoothing is not None:
            smoothed_change = p.smoothing(p.correlate(gradient, p.query))
            denominator = denominator + smoothed_change.square().flatten(1).sum(1).view(-1, 1, 1, 1)
        step = quotient(p.step_factor * numerator, denominator.clamp(min=p.floor))
        if observe is not None:
            observe(State(filters, scores, residual, smoothed, step, gradient, change))
        filters = filters - step * gradient
        scores = scores - step * change
        if smoothed is not None:
            smoothed = smoothed - step.view(-1, *[1] * 5) * smoothed_change
    if observe is not None:
        observe(State(filters, scores, residual_and_slope(scores, p.coefficients, p.eta)[0], smoothed))
    return filters
