"""Local GOCor's iterations in one kernel, as a custom operator.

The forward pass is one launch that writes nothing but the filters. The backward pass computes the iterations anew and
walks back through them by the rules below, so nothing is stored between the two.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..ops import local_correlation, local_correlation_adjoint_query, local_correlation_adjoint_reference
from ..ops.kernels import can_descend, kernels, supported
from .descent import Problem, State, squared_norm, steepest_descent, step_length
from .objective import TargetMaps, residual_and_slope


def can_fuse(problem: Problem, radius: int) -> bool:
    """Whether the fused kernel can take this problem."""
    return problem.regularizer is None and can_descend(problem.reference, radius)


def fused_descent(problem: Problem, filters: Tensor, *, radius: int, iters: int) -> Tensor:
    """`descent.steepest_descent` of a local problem without query term: `(B, D, H, W)` → `(B, D, H, W)`."""
    target, weight, mask = (values.flatten() for values in problem.maps)
    return _descend(
        problem.reference, filters, target, weight, mask, problem.regularization, problem.step_factor,
        radius, iters, problem.eta, problem.floor,
    )  # fmt: skip


@torch.library.custom_op("gocor::local_descent", mutates_args=())
def _descend(
    reference: Tensor, filters: Tensor, target: Tensor, weight: Tensor, mask: Tensor, regularization: Tensor,
    step_factor: Tensor, radius: int, iters: int, eta: float, floor: float,
) -> Tensor:  # fmt: skip
    options = regularization, step_factor, radius, iters, eta, floor
    if supported(reference.device):
        try:
            return kernels().descend(reference, filters, (target, weight, mask), *options)
        except kernels().OutOfResources:  # a GPU with less memory on chip than the kernel needs
            pass
    maps = _maps(target, weight, mask)
    problem = _problem(reference, maps, regularization, step_factor, radius, eta, floor)
    return steepest_descent(problem, filters, iters).clone()


def _maps(target: Tensor, weight: Tensor, mask: Tensor) -> TargetMaps:
    return TargetMaps(*(values.view(-1, 1, 1) for values in (target, weight, mask)))


def _problem(
    reference: Tensor,
    maps: TargetMaps,
    regularization: Tensor,
    step_factor: Tensor,
    radius: int,
    eta: float,
    floor: float,
) -> Problem:
    """The problem in plain operators, as `descent.steepest_descent` takes it."""
    return Problem(
        reference=reference,
        query=reference,  # not looked at without a query term
        maps=maps,
        eta=eta,
        regularization=regularization,
        step_factor=step_factor,
        floor=floor,
        correlate=partial(local_correlation, radius=radius, normalize="sum"),
        adjoint=partial(local_correlation_adjoint_reference, radius=radius, normalize="sum"),
        regularizer=None,
        fold=lambda scores: scores,
        unfold=lambda scores: scores,
    )


def descent_gradients(
    grad: Tensor, reference: Tensor, filters: Tensor, maps: TargetMaps, regularization: Tensor, step_factor: Tensor,
    radius: int, iters: int, eta: float, floor: float,
) -> list[Tensor]:  # fmt: skip
    """Gradients of a local descent without query term: of reference, filters, y′, v⁺, m, λ² and s.

    Every step of the iteration (see `descent`) in reverse, bars for gradients. C, Cᵀ and C_qᵀ are the local correlation
    and its adjoints in the first and in the second argument.
    """
    problem = _problem(reference, maps, regularization, step_factor, radius, eta, floor)
    correlate, adjoint = problem.correlate, problem.adjoint
    adjoint_query = partial(local_correlation_adjoint_query, radius=radius, normalize="sum")
    states: list[State] = []
    steepest_descent(problem, filters, iters, states.append)
    bar_w, bar_c, bar_reference = grad, torch.zeros_like(states[-1].scores), torch.zeros_like(reference)
    bar_maps = [torch.zeros_like(values) for values in maps]
    bar_regularization, bar_factor = torch.zeros_like(regularization), torch.zeros_like(step_factor)
    coefficients = maps.coefficients()
    for state in reversed(states[:-1]):
        w, c, g, t = state.filters, state.scores, state.gradient, state.change
        assert g is not None and t is not None  # noqa: PT018
        residual, slope = residual_and_slope(c, coefficients, eta)
        numerator = squared_norm(g, (1,))
        curvature = squared_norm(slope * t, (1,)) + regularization * numerator
        alpha = step_length(numerator, curvature, floor)
        step = step_factor * alpha
        # w′ = w − s·α·g and c′ = c − s·α·t
        bar_g, bar_t = -step * bar_w, -step * bar_c
        bar_step = -((bar_w * g).sum(1, keepdim=True) + (bar_c * t).sum(1, keepdim=True))
        bar_factor += (bar_step * alpha).sum()
        # α = ‖g‖² / max(‖q·t‖² + λ²‖g‖², floor)
        bar_alpha = bar_step * step_factor / curvature.clamp(min=floor)
        bar_curvature = torch.where(curvature >= floor, -bar_alpha * alpha, 0)
        bar_numerator = bar_alpha + regularization * bar_curvature
        bar_regularization += (bar_curvature * numerator).sum()
        bar_slope = 2 * bar_curvature * slope * t * t
        bar_t = bar_t + 2 * bar_curvature * slope * slope * t
        # t = C(g), g = Cᵀ(q·r) + λ²w
        bar_g = bar_g + 2 * bar_numerator * g + adjoint(bar_t, reference)
        bar_pull = correlate(bar_g, reference)
        bar_reference += adjoint_query(bar_t, g) + adjoint_query(slope * residual, bar_g)
        bar_regularization += (bar_g * w).sum()
        bar_w = bar_w + regularization * bar_g
        # r and q of the scores and of the maps
        bar_slope, bar_residual = bar_slope + bar_pull * residual, bar_pull * slope
        bar_scores, *bars = _residual_gradients(c, maps, eta, bar_residual, bar_slope, slope)
        bar_c = bar_c + bar_scores
        for total, bar in zip(bar_maps, bars, strict=True):
            total += bar.sum((0, 2, 3)).view_as(total)
    bar_w = bar_w + adjoint(bar_c, reference)
    bar_reference += adjoint_query(bar_c, filters)
    return [bar_reference, bar_w, *bar_maps, bar_regularization, bar_factor]


def _residual_gradients(
    scores: Tensor, maps: TargetMaps, eta: float, bar_residual: Tensor, bar_slope: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of `residual_and_slope`: of the scores, y′, v⁺ and m, each `(B, K, H, W)`."""
    target, weight, mask = maps
    if eta == 0:
        magnitude, direction, curvature = scores.abs(), scores.sign(), torch.zeros_like(scores)
    else:
        root = (scores.square() + eta * eta).sqrt()
        magnitude, direction, curvature = root - eta, scores / root, eta * eta / root**3
    bend, slant = (1 - mask) / 2, (1 + mask) / 2
    bar_scores = bar_residual * slope + bar_slope * weight * bend * curvature
    bar_weight = bar_residual * (bend * magnitude + slant * scores - target) + bar_slope * (bend * direction + slant)
    bar_mask = weight / 2 * (bar_residual * (scores - magnitude) + bar_slope * (1 - direction))
    return bar_scores, -weight * bar_residual, bar_weight, bar_mask


@torch.library.custom_op("gocor::local_descent_backward", mutates_args=())
def _descend_backward(
    grad: Tensor, reference: Tensor, filters: Tensor, target: Tensor, weight: Tensor, mask: Tensor,
    regularization: Tensor, step_factor: Tensor, radius: int, iters: int, eta: float, floor: float,
) -> list[Tensor]:  # fmt: skip
    options = regularization, step_factor, radius, iters, eta, floor
    gradients = descent_gradients(grad, reference, filters, _maps(target, weight, mask), *options)
    inputs = reference, filters, target, weight, mask, regularization, step_factor
    return [g.view_as(x).contiguous() for g, x in zip(gradients, inputs, strict=True)]


@_descend.register_fake
def _(reference: Tensor, filters: Tensor, *_: Any) -> Tensor:
    return filters.new_empty(filters.shape)


@_descend_backward.register_fake
def _(grad: Tensor, *inputs: Any) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in inputs[:7]]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:7])
    ctx.options = inputs[7:]


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return *_descend_backward(grad.contiguous(), *ctx.saved_tensors, *ctx.options), None, None, None, None


_descend.register_autograd(_backward, setup_context=_save)
