"""Global GOCor in Gram space in few launches, as one custom operator without gradients: initial filters to volume."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels import global_kernels


class Parameters(NamedTuple):
    """What `fused_global_volume` takes besides features, all in float32; it does not depend on their size.

    Attributes:
        beta: β of the initial filters, `(1,)` or `(D,)`.
        gamma: γ of the same size, or `None` for filters that do not start from the context.
        table: coefficients of the reference term by squared distance `(3, L)`; the last are those of all beyond.
        regularization: λ².
        step_factor: s.
        taps: R by query and reference tap `(9, 9, O)`, or `None` without query term.
        first: R's taps over the query, `(9, I)`.
        second: R's taps over the reference, `(9, O, I)`.
    """

    beta: Tensor
    gamma: Tensor | None
    table: Tensor
    regularization: Tensor
    step_factor: Tensor
    taps: Tensor | None
    first: Tensor | None
    second: Tensor | None


class Options(NamedTuple):
    """See `gram.gram_descent`; `stabilizer` is added to ‖f‖² where filters do not start from the context."""

    iters: int
    eta: float
    floor: float
    stabilizer: float


def fused_global_volume(reference: Tensor, query: Tensor, parameters: Parameters, options: Options) -> Tensor:
    """The volume of global GOCor.

    Args:
        reference: `(B, D, Hr, Wr)`, float32 or 16 bits.
        query: `(B, D, Hq, Wq)`, of the same dtype.
        parameters: see `Parameters`.
        options: see `Options`.

    Returns:
        `(B, Hq·Wq, Hr, Wr)` in the features' dtype. Not differentiable.
    """
    return _global_gocor(reference, query, *parameters, *options)


@torch.library.custom_op("gocor::global_gocor", mutates_args=())
def _global_gocor(
    reference: Tensor, query: Tensor, beta: Tensor, gamma: Tensor | None, table: Tensor, regularization: Tensor,
    step_factor: Tensor, taps: Tensor | None, first: Tensor | None, second: Tensor | None,
    iters: int, eta: float, floor: float, stabilizer: float,
) -> Tensor:  # fmt: skip
    parameters = beta, gamma, table, regularization, step_factor, taps, first, second
    return global_kernels().descend(reference, query, *parameters, iters, eta, floor, stabilizer)


@_global_gocor.register_fake
def _(reference: Tensor, query: Tensor, *rest: object) -> Tensor:
    batch, _, height, width = reference.shape
    return reference.new_empty(batch, query.shape[2] * query.shape[3], height, width)
