"""RᵀR of the query term, as one operator: R's many channels live only within it, in the backward pass too."""

from typing import Any

import torch
from torch import Tensor

from ...modules.objective import QueryRegularizer
from ..kernels import can_smooth, smoothing_kernels


def smooth_twice(regularizer: QueryRegularizer, volume: Tensor) -> Tensor:
    """RᵀR ∗ volume, with the query's positions first: `(B, Hq, Wq, Hr, Wr)` both."""
    w1, w2 = regularizer.weight1, regularizer.weight2
    if can_smooth(volume, w1, w2):
        return _smooth_twice(volume, *separate_taps(regularizer))
    smoothed = regularizer(volume.permute(0, 3, 4, 1, 2))
    return regularizer.adjoint(smoothed).permute(0, 3, 4, 1, 2)


def separate_taps(regularizer: QueryRegularizer) -> tuple[Tensor, Tensor]:
    """R's two factors as the kernels take them: `(9, I)` over the query, `(9, O, I)` over the reference."""
    first = regularizer.weight1.float().flatten(1).mT.contiguous()
    return first, regularizer.weight2.float().flatten(2).permute(2, 0, 1).contiguous()


@torch.library.custom_op("gocor::smooth_twice", mutates_args=())
def _smooth_twice(volume: Tensor, first: Tensor, second: Tensor) -> Tensor:
    if not volume.numel():
        return volume.new_empty(volume.shape)
    kernels = smoothing_kernels()
    return kernels.smooth_adjoint(kernels.smooth(volume, first, second), first, second)


@torch.library.custom_op("gocor::smooth_twice_backward", mutates_args=())
def _smooth_twice_backward(
    grad: Tensor, volume: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """RᵀR is its own adjoint, and ⟨ḡ, RᵀRx⟩ = ⟨Rḡ, Rx⟩ gives the taps' gradient."""
    if not volume.numel():
        return volume.new_empty(volume.shape), torch.zeros_like(first), torch.zeros_like(second)
    kernels = smoothing_kernels()
    smoothed = kernels.smooth(grad, first, second)
    of_volume = kernels.smooth_adjoint(smoothed, first, second)
    parts = [kernels.taps_gradient(volume, smoothed, first, second)]
    smoothed = kernels.smooth(volume, first, second)
    parts.append(kernels.taps_gradient(grad, smoothed, first, second))
    of_first, of_second = (a + b for a, b in zip(*parts, strict=True))
    return of_volume, of_first, of_second


@_smooth_twice.register_fake
def _(volume: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return volume.new_empty(volume.shape)


@_smooth_twice_backward.register_fake
def _(grad: Tensor, volume: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return volume.new_empty(volume.shape), first.new_empty(first.shape), second.new_empty(second.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    return tuple(_smooth_twice_backward(grad, *ctx.saved_tensors))


_smooth_twice.register_autograd(_backward, setup_context=_save)
