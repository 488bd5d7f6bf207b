"""Every custom operator of GOCor's iterations, with its shapes and its autograd rule.

All of them run Triton kernels. Triton is imported when the first of them runs.
"""

from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor


class LocalParameters(NamedTuple):
    """Tensors of local GOCor that its kernels take, in float32.

    Attributes:
        beta: β of the initial filters w⁰ = β·f/(‖f‖² + ε), one value; zero for filters that start from zero.
        absolute_gain: see `reference.Coefficients`, by displacement, `((2R+1)²,)`.
        linear_gain: likewise.
        weighted_target: likewise.
        regularization: λ², `(1,)` or one value per sample `(B,)`.
        step_factor: s, a scalar.
    """

    beta: Tensor
    absolute_gain: Tensor
    linear_gain: Tensor
    weighted_target: Tensor
    regularization: Tensor
    step_factor: Tensor


class LocalOptions(NamedTuple):
    """Numbers of local GOCor that its kernels take; `stabilizer` is ε of the initial filters."""

    radius: int
    iters: int
    eta: float
    floor: float
    stabilizer: float


class GlobalParameters(NamedTuple):
    """Tensors of global GOCor that its kernels take, in float32. They do not depend on the size of the features.

    Attributes:
        beta: β of the initial filters, `(1,)` or `(D,)`.
        gamma: γ of the same size, or `None` for an initialiser without context.
        table: the three `reference.Coefficients` by squared distance, `(3, L)`; larger distances use the last entry.
        regularization: λ², `(1,)` or one value per sample `(B,)`.
        step_factor: s, a scalar.
        taps: R multiplied out, by query and reference tap `(9, 9, Q)`; `None` without query objective.
        first: R's taps over the query, `(9, I)`.
        second: R's taps over the reference, `(9, Q, I)`.
    """

    beta: Tensor
    gamma: Tensor | None
    table: Tensor
    regularization: Tensor
    step_factor: Tensor
    taps: Tensor | None
    first: Tensor | None
    second: Tensor | None


class GlobalOptions(NamedTuple):
    """Numbers of global GOCor that its kernels take; `stabilizer` is ε of the initial filters without context."""

    iters: int
    eta: float
    floor: float
    stabilizer: float


@cache
def _kernels(name: str) -> ModuleType:
    from importlib import import_module

    return import_module(f"{__package__}.{name}")


# Local GOCor: filters, differentiable once.


def local_filters(reference: Tensor, parameters: LocalParameters, options: LocalOptions) -> Tensor:
    """Optimised filters of local GOCor without query objective, in Gram space: `(B, D, H, W)` float32.

    Args:
        reference: features `(B, D, H, W)`, float32 or 16 bits. Products are accumulated and iterations run in float32.
        parameters: see `LocalParameters`.
        options: see `LocalOptions`.
    """
    return _local_filters(reference, *parameters, *options)[0]


@torch.library.custom_op("gocor::local_filters", mutates_args=())
def _local_filters(
    reference: Tensor, beta: Tensor, absolute_gain: Tensor, linear_gain: Tensor, weighted_target: Tensor,
    regularization: Tensor, step_factor: Tensor, radius: int, iters: int, eta: float, floor: float, stabilizer: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    parameters = LocalParameters(beta, absolute_gain, linear_gain, weighted_target, regularization, step_factor)
    options = LocalOptions(radius, iters, eta, floor, stabilizer)
    return _kernels("local_gram_triton").filters(reference, parameters, options)


@_local_filters.register_fake
def _(reference: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    batch, _, height, width = reference.shape
    coefficients = reference.new_empty(batch, (2 * rest[6] + 1) ** 2, height, width, dtype=torch.float32)
    return torch.empty_like(_dense(reference), dtype=torch.float32), coefficients


@torch.library.custom_op("gocor::local_filters_backward", mutates_args=())
def _local_filters_backward(
    grad: Tensor, coefficients: Tensor, reference: Tensor, beta: Tensor, absolute_gain: Tensor, linear_gain: Tensor,
    weighted_target: Tensor, regularization: Tensor, step_factor: Tensor, radius: int, iters: int, eta: float,
    floor: float, stabilizer: float, of_reference: bool,
) -> list[Tensor]:  # fmt: skip
    parameters = LocalParameters(beta, absolute_gain, linear_gain, weighted_target, regularization, step_factor)
    options = LocalOptions(radius, iters, eta, floor, stabilizer)
    kernels = _kernels("local_gram_triton")
    return kernels.filters_gradients(grad, coefficients, reference, parameters, options, of_reference=of_reference)


@_local_filters_backward.register_fake
def _(grad: Tensor, coefficients: Tensor, reference: Tensor, *rest: Any) -> list[Tensor]:
    like = _dense(reference)
    return [torch.empty_like(like) if rest[-1] else like.new_empty(0), *(x.new_empty(x.shape) for x in rest[:6])]


def _save_local(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs[:7])
    ctx.options = inputs[7:]


def _local_backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    of_reference = ctx.needs_input_grad[0]
    gradients = _local_filters_backward(grad, *ctx.saved_tensors, *ctx.options, of_reference)
    return gradients[0] if of_reference else None, *gradients[1:], None, None, None, None, None


_local_filters.register_autograd(_local_backward, setup_context=_save_local)


# Local GOCor: volume on tensor cores, without gradients.


def local_volume(
    reference: Tensor, query: Tensor, parameters: LocalParameters, table: Tensor, options: LocalOptions
) -> Tensor:
    """The volume of local GOCor on tensor cores, R ≤ 4: `(B, (2R+1)², H, W)` in the features' dtype.

    Args:
        reference: features `(B, D, H, W)`, float32 or 16 bits.
        query: features of the same shape and dtype.
        parameters: see `LocalParameters`.
        table: `coefficient_table` of these parameters.
        options: see `LocalOptions`.
    """
    scalars = parameters.beta, parameters.regularization, parameters.step_factor
    return _local_volume(reference, query, table, *scalars, *options)


def coefficient_table(parameters: LocalParameters, radius: int) -> Tensor:
    """Coefficients by displacement, padded with zeros to where the tensor-core kernel reads them: `(3, 12·16)`."""
    side = 2 * radius + 1
    maps = torch.stack(parameters[1:4]).view(-1, side, side)
    return torch.nn.functional.pad(maps, (7, 9 - side, 1, 11 - side)).flatten(1)


@torch.library.custom_op("gocor::local_volume", mutates_args=())
def _local_volume(
    reference: Tensor, query: Tensor, table: Tensor, beta: Tensor, regularization: Tensor, step_factor: Tensor,
    radius: int, iters: int, eta: float, floor: float, stabilizer: float,
) -> Tensor:  # fmt: skip
    options = LocalOptions(radius, iters, eta, floor, stabilizer)
    return _kernels("local_tile_triton").volume(reference, query, table, beta, regularization, step_factor, options)


@_local_volume.register_fake
def _(reference: Tensor, query: Tensor, table: Tensor, *rest: Any) -> Tensor:
    batch, _, height, width = reference.shape
    return reference.new_empty(batch, (2 * rest[3] + 1) ** 2, height, width)


# Global GOCor: volume in Gram space, without gradients.


def global_volume(reference: Tensor, query: Tensor, parameters: GlobalParameters, options: GlobalOptions) -> Tensor:
    """The volume of global GOCor, `(B, Hq·Wq, Hr, Wr)` in the features' dtype.

    Args:
        reference: features `(B, D, Hr, Wr)`, float32 or 16 bits.
        query: features `(B, D, Hq, Wq)`, of the same dtype.
        parameters: see `GlobalParameters`.
        options: see `GlobalOptions`.
    """
    return _global_volume(reference, query, *parameters, *options)


@torch.library.custom_op("gocor::global_volume", mutates_args=())
def _global_volume(
    reference: Tensor, query: Tensor, beta: Tensor, gamma: Tensor | None, table: Tensor, regularization: Tensor,
    step_factor: Tensor, taps: Tensor | None, first: Tensor | None, second: Tensor | None,
    iters: int, eta: float, floor: float, stabilizer: float,
) -> Tensor:  # fmt: skip
    parameters = GlobalParameters(beta, gamma, table, regularization, step_factor, taps, first, second)
    return _kernels("global_triton").volume(reference, query, parameters, GlobalOptions(iters, eta, floor, stabilizer))


@_global_volume.register_fake
def _(reference: Tensor, query: Tensor, *rest: Any) -> Tensor:
    batch, _, height, width = reference.shape
    return reference.new_empty(batch, query.shape[2] * query.shape[3], height, width)


# RᵀR of the query objective. R's many channels exist only inside these operators.


@torch.library.custom_op("gocor::smooth_twice", mutates_args=())
def smooth_twice(volume: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """RᵀR ∗ volume `(B, Hq, Wq, Hr, Wr)`, with R's taps `(9, I)` over the query and `(9, Q, I)` over the reference."""
    if not volume.numel():
        return volume.new_empty(volume.shape)
    kernels = _kernels("smoothing_triton")
    return kernels.smooth_adjoint(kernels.smooth(volume, first, second), first, second)


@smooth_twice.register_fake
def _(volume: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return volume.new_empty(volume.shape)


@torch.library.custom_op("gocor::smooth_twice_backward", mutates_args=())
def _smooth_twice_backward(
    grad: Tensor, volume: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """RᵀR is self-adjoint, and ⟨ḡ, RᵀRx⟩ = ⟨Rḡ, Rx⟩ gives the gradient of the taps."""
    if not volume.numel():
        return volume.new_empty(volume.shape), torch.zeros_like(first), torch.zeros_like(second)
    kernels = _kernels("smoothing_triton")
    smoothed = kernels.smooth(grad, first, second)
    of_volume = kernels.smooth_adjoint(smoothed, first, second)
    parts = [kernels.taps_gradient(volume, smoothed, first, second)]
    smoothed = kernels.smooth(volume, first, second)
    parts.append(kernels.taps_gradient(grad, smoothed, first, second))
    of_first, of_second = (a + b for a, b in zip(*parts, strict=True))
    return of_volume, of_first, of_second


@_smooth_twice_backward.register_fake
def _(grad: Tensor, volume: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return volume.new_empty(volume.shape), first.new_empty(first.shape), second.new_empty(second.shape)


def _save_smoothing(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _smoothing_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    return tuple(_smooth_twice_backward(grad, *ctx.saved_tensors))


smooth_twice.register_autograd(_smoothing_backward, setup_context=_save_smoothing)


def _dense(features: Tensor) -> Tensor:
    """Features without gaps, channels first or channels last."""
    return features if features.is_contiguous(memory_format=torch.channels_last) else features.contiguous()
