"""RᵀR of the query term, as one operator: R's many channels live only within it, in the backward pass too."""

from typing import Any

import torch
from torch import Tensor

from ..ops.kernels import can_smooth, smoothing_kernels
from .objective import QueryRegularizer


def smooth_twice(regularizer: QueryRegularizer, volume: Tensor) -> Tensor:
    """RᵀR ∗ volume, with the query's positions first: `(B, Hq, Wq, Hr, Wr)` both."""
    w1, w2 = regularizer.weight1, regularizer.weight2
    if can_smooth(volume, w1.shape[2], w2.shape[0]):
        kernel = torch.einsum("iab,oicd->abcdo", w1.squeeze(1), w2).flatten(0, 3).float()  # (81, O)
        return _smooth_twice(volume, kernel)
    smoothed = regularizer(volume.permute(0, 3, 4, 1, 2))
    return regularizer.adjoint(smoothed).permute(0, 3, 4, 1, 2)


@torch.library.custom_op("gocor::smooth_twice", mutates_args=())
def _smooth_twice(volume: Tensor, kernel: Tensor) -> Tensor:
    kernels = smoothing_kernels()
    return kernels.smooth_adjoint(kernels.smooth(volume, kernel), kernel)


@torch.library.custom_op("gocor::smooth_twice_backward", mutates_args=())
def _smooth_twice_backward(grad: Tensor, volume: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """RᵀR is its own adjoint, and ⟨ḡ, RᵀRx⟩ = ⟨Rḡ, Rx⟩ gives the kernel's gradient."""
    kernels = smoothing_kernels()
    smoothed_grad = kernels.smooth(grad, kernel)
    of_kernel = kernels.kernel_gradient(volume, smoothed_grad)
    of_volume = kernels.smooth_adjoint(smoothed_grad, kernel)
    del smoothed_grad
    return of_volume, of_kernel + kernels.kernel_gradient(grad, kernels.smooth(volume, kernel))


@_smooth_twice.register_fake
def _(volume: Tensor, kernel: Tensor) -> Tensor:
    return volume.new_empty(volume.shape)


@_smooth_twice_backward.register_fake
def _(grad: Tensor, volume: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    return volume.new_empty(volume.shape), kernel.new_empty(kernel.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    gradients = _smooth_twice_backward(grad, *ctx.saved_tensors)
    return gradients[0], gradients[1]


_smooth_twice.register_autograd(_backward, setup_context=_save)
