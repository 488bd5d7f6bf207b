"""Steepest descent with the exact Gauss–Newton step (paper, eq. 8 and algorithm 1): the readable form.

With r the residual of the reference term, q = ∂r/∂C, and ρ = R ∗ C(w, f^q), one iteration is

    g = Cᵀ(q·r, f^r) + Cᵀ(Rᵀρ, f^q) + λ²w
    α = ‖g‖² / (‖q·C(g, f^r)‖² + ‖R ∗ C(g, f^q)‖² + λ²‖g‖²)
    w ← w − s·α·g

The reference term and the regulariser separate over locations, so without the query term every location has its own
α, the exact line minimum; with it there is one α per sample. (The paper writes one α throughout; this is what
published code does.) s is a learnt factor that the paper does not mention. Correlations are linear in the filters, so
scores are updated along with the filters and never computed anew.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...modules.objective import QueryRegularizer, TargetMaps, residual_and_slope

PER_LOCATION, PER_SAMPLE = (1,), (1, 2, 3)


@dataclass(frozen=True)
class Problem:
    """Everything that an optimisation needs but the filters: one pair of images, one objective.

    Attributes:
        reference: features `(B, D, H, W)`.
        query: features `(B, D, H′, W′)`.
        maps: what the reference term asks for, broadcastable to the scores `(B, K, H, W)`.
        eta: η of the robust function.
        regularization: λ², a scalar tensor.
        step_factor: s, a scalar tensor.
        floor: lower bound of α's denominator.
        correlate: C(filters, features), `(B, D, H, W)` × features → `(B, K, H, W)`.
        adjoint: its adjoint in the filters, `(B, K, H, W)` × features → `(B, D, H, W)`.
        regularizer: R, where the objective has a query term.
        fold: query scores `(B, K, H, W)` → the 4-D volume of each sample that R acts on, `(B, U1, U2, V1, V2)`.
        unfold: the inverse of `fold`.
    """

    reference: Tensor
    query: Tensor
    maps: TargetMaps
    eta: float
    regularization: Tensor
    step_factor: Tensor
    floor: float
    correlate: Callable[[Tensor, Tensor], Tensor]
    adjoint: Callable[[Tensor, Tensor], Tensor]
    regularizer: QueryRegularizer | None
    fold: Callable[[Tensor], Tensor]
    unfold: Callable[[Tensor], Tensor]

    def smooth(self, query_scores: Tensor) -> Tensor:
        """R ∗ query scores."""
        assert self.regularizer is not None
        return self.regularizer(self.fold(query_scores))

    def smooth_adjoint(self, smoothed: Tensor) -> Tensor:
        """Rᵀ of smoothed query scores."""
        assert self.regularizer is not None
        return self.unfold(self.regularizer.adjoint(smoothed))

    @property
    def dims(self) -> tuple[int, ...]:
        """Dimensions of scores and filters that share one step length."""
        return PER_LOCATION if self.regularizer is None else PER_SAMPLE


@dataclass(frozen=True)
class State:
    """Filters before an iteration, with what the iteration makes of them (`None` after the last).

    `gradient` is g and `change` its scores C(g, f^r).
    """

    filters: Tensor
    scores: Tensor
    residual: Tensor
    smoothed: Tensor | None
    step_length: Tensor | None = None
    gradient: Tensor | None = None
    change: Tensor | None = None


def squared_norm(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Sum of squares over some dimensions, which are kept."""
    return x.square().sum(dims, keepdim=True)


def step_length(numerator: Tensor, denominator: Tensor, floor: float) -> Tensor:
    """α = ‖g‖²/‖Jg‖², finite where both vanish."""
    return numerator / denominator.clamp(min=floor)


def steepest_descent(
    problem: Problem, filters: Tensor, iters: int, observe: Callable[[State], None] | None = None
) -> Tensor:
    """Optimise a filter map.

    Args:
        problem: what to minimise.
        filters: w⁰ `(B, D, H, W)`.
        iters: number of iterations; none leaves the filters as they are.
        observe: called before each iteration's update and once after the last.

    Returns:
        The filters after `iters` iterations, `(B, D, H, W)`.
    """
    p, weight_decay, dims = problem, problem.regularization, problem.dims
    if iters == 0 and observe is None:
        return filters
    coefficients = p.maps.coefficients()
    scores = p.correlate(filters, p.reference)
    smoothed = p.smooth(p.correlate(filters, p.query)) if p.regularizer is not None else None
    for _ in range(iters):
        residual, slope = residual_and_slope(scores, coefficients, p.eta)
        gradient = p.adjoint(slope * residual, p.reference) + weight_decay * filters
        if smoothed is not None:
            gradient = gradient + p.adjoint(p.smooth_adjoint(smoothed), p.query)
        change = p.correlate(gradient, p.reference)
        numerator = squared_norm(gradient, dims)
        denominator = squared_norm(slope * change, dims) + weight_decay * numerator
        if smoothed is not None:
            smoothed_change = p.smooth(p.correlate(gradient, p.query))
            denominator = denominator + smoothed_change.square().flatten(1).sum(1).view(-1, 1, 1, 1)
        step = p.step_factor * step_length(numerator, denominator, p.floor)
        if observe is not None:
            observe(State(filters, scores, residual, smoothed, step, gradient, change))
        filters = filters - step * gradient
        scores = scores - step * change
        if smoothed is not None:
            smoothed = smoothed - step.view(-1, *[1] * 5) * smoothed_change
    if observe is not None:
        residual, _ = residual_and_slope(scores, coefficients, p.eta)
        observe(State(filters, scores, residual, smoothed))
    return filters


def scale_free_floor(dtype: torch.dtype) -> float:
    """A floor of α's denominator that only keeps 0/0 and denormal numbers out."""
    return torch.finfo(dtype).tiny * 1e8
