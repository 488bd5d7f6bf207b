"""Local GOCor without gradients on a GPU's matrix units, as a custom operator: see `ops.tile_triton`."""

from typing import Any

import torch
from torch import Tensor

from ..kernels import supported, tile_kernels
from .fused import fused_volume
from .gram_reference import Options


def inference_volume(reference: Tensor, query: Tensor, parameters: tuple[Tensor, ...], options: Options) -> Tensor:
    """What `fused_volume` computes, not differentiable, on matrix units where the device has them and they are faster.

    Args:
        reference: as in `fused_volume`.
        query: as in `fused_volume`.
        parameters: as in `fused_volume`, then the `spread` coefficients.
        options: as in `fused_volume`, a radius of 4 at the most.
    """
    return _local_gocor_volume(reference, query, *parameters, *options)


def spread(coefficients: tuple[Tensor, ...], radius: int) -> Tensor:
    """Coefficients by displacement, `((2R+1)²,)` each, where the kernel reads them, amid zeros: `(3, 12·16)`."""
    side = 2 * radius + 1
    maps = torch.stack(coefficients).view(-1, side, side)
    return torch.nn.functional.pad(maps, (7, 9 - side, 1, 11 - side)).flatten(1)


@torch.library.custom_op("gocor::local_gocor_volume", mutates_args=())
def _local_gocor_volume(
    reference: Tensor, query: Tensor, beta: Tensor, bend: Tensor, slant: Tensor, goal: Tensor, regularization: Tensor,
    step_factor: Tensor, tables: Tensor, radius: int, iters: int, eta: float, floor: float, stabilizer: float,
) -> Tensor:  # fmt: skip
    options = Options(radius, iters, eta, floor, stabilizer)
    if supported(reference.device) and tile_kernels().pays(reference):
        return tile_kernels().volume(reference, query, (beta, tables, regularization, step_factor), options)
    return fused_volume(reference, query, (beta, bend, slant, goal, regularization, step_factor), options)


@_local_gocor_volume.register_fake
def _(reference: Tensor, query: Tensor, *parameters: Any) -> Tensor:
    batch, _, height, width = reference.shape
    return reference.new_empty(batch, (2 * parameters[7] + 1) ** 2, height, width)
