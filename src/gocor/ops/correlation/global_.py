"""Global correlation and its two adjoints: matrix products with the interface of the local operators."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from ...utils.checks import Normalize, check_feature_pair, check_features, check_size, check_volume, scale_of
from .. import select
from ..transforms import Operator


def global_correlation(reference: Tensor, query: Tensor, *, normalize: Normalize = "sum") -> Tensor:
    """Scalar products of every reference pixel with every query pixel (paper, eq. 1).

    `out[b, yq·Wq + xq, y, x] = norm · Σ_c reference[b, c, y, x] · query[b, c, yq, xq]`.

    Args:
        reference: feature map `(B, C, Hr, Wr)`.
        query: feature map `(B, C, Hq, Wq)`; its size may differ from the reference's.
        normalize: `"sum"` over channels (norm = 1), as in the published global layers, or `"mean"` (norm = 1/C).

    Returns:
        Correspondence volume `(B, Hq·Wq, Hr, Wr)`: channels run over query positions, row by row.
    """
    reference, query = check_feature_pair(reference, query, same_size=False)
    scale = scale_of(normalize, reference.shape[1])
    with _without_autocast(reference):
        return (_product if select.exporting() else _correlate)(reference, query, scale)


def global_correlation_adjoint_reference(volume: Tensor, query: Tensor, *, normalize: Normalize = "sum") -> Tensor:
    """Adjoint of `global_correlation` with respect to its reference: `norm · Σ_q volume[q, p] · query[:, q]`.

    Args:
        volume: `(B, Hq·Wq, Hr, Wr)`.
        query: feature map `(B, C, Hq, Wq)`.
        normalize: as in `global_correlation`.

    Returns:
        Map `(B, C, Hr, Wr)`.
    """
    check_features("query", query)
    batch, channels, height, width = query.shape
    check_volume("volume", volume, "query", query, (batch, height * width, *volume.shape[2:]))
    with _without_autocast(query):
        return _adjoint_reference(volume, query, scale_of(normalize, channels))


def global_correlation_adjoint_query(
    volume: Tensor, reference: Tensor, size: Sequence[int], *, normalize: Normalize = "sum"
) -> Tensor:
    """Adjoint of `global_correlation` with respect to its query: `norm · Σ_p volume[q, p] · reference[:, p]`.

    Args:
        volume: `(B, Hq·Wq, Hr, Wr)`.
        reference: feature map `(B, C, Hr, Wr)`.
        size: `(Hq, Wq)`.
        normalize: as in `global_correlation`.

    Returns:
        Map `(B, C, Hq, Wq)`.
    """
    height, width = check_size("size", size)
    check_features("reference", reference)
    batch, channels, *of_reference = reference.shape
    check_volume("volume", volume, "reference", reference, (batch, height * width, *of_reference))
    with _without_autocast(reference):
        return _adjoint_query(volume, reference, scale_of(normalize, channels)).unflatten(2, (height, width))


def transpose_global_volume(volume: Tensor, size: Sequence[int]) -> Tensor:
    """A global volume `(B, Hq·Wq, Hr, Wr)` as seen from the query of size `(Hq, Wq)`: `(B, Hr·Wr, Hq, Wq)`."""
    height, width = check_size("size", size)
    check_features("volume", volume)
    check_volume("volume", volume, "volume", volume, (volume.shape[0], height * width, *volume.shape[2:]))
    return volume.flatten(2).mT.unflatten(2, (height, width))


def _without_autocast(features: Tensor) -> AbstractContextManager[object]:
    """A context without autocast, so that products have the dtype of their operands. Exported graphs need none."""
    return nullcontext() if select.exporting() else torch.autocast(features.device.type, enabled=False)


def _product(reference: Tensor, query: Tensor, scale: float) -> Tensor:
    volume = _scaled_bmm(query.flatten(2).mT, reference.flatten(2), scale)
    return volume.unflatten(2, reference.shape[2:])


def _adjoint_reference(volume: Tensor, query: Tensor, scale: float) -> Tensor:
    return _scaled_bmm(query.flatten(2), volume.flatten(2), scale).unflatten(2, volume.shape[2:])


def _adjoint_query(volume: Tensor, reference: Tensor, scale: float) -> Tensor:
    return _scaled_bmm(reference.flatten(2), volume.flatten(2).mT, scale)


def _scaled_bmm(a: Tensor, b: Tensor, scale: float) -> Tensor:
    # The factor is applied to one operand before the product: in float16 a sum would overflow where its mean does not.
    return torch.bmm(a * scale if scale != 1.0 else a, b)


@torch.library.custom_op("gocor::global_correlation", mutates_args=())
def _correlate_operator(reference: Tensor, query: Tensor, scale: float) -> Tensor:
    return _product(reference, query, scale)


@_correlate_operator.register_fake
def _(reference: Tensor, query: Tensor, scale: float) -> Tensor:
    batch, _, height, width = reference.shape
    return reference.new_empty(batch, query.shape[2] * query.shape[3], height, width)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    reference, query, ctx.scale = inputs
    ctx.save_for_backward(reference, query)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    reference, query = ctx.saved_tensors
    need_reference, need_query = ctx.needs_input_grad[:2]
    return (
        _adjoint_reference(grad, query, ctx.scale) if need_reference else None,
        _adjoint_query(grad, reference, ctx.scale).view_as(query) if need_query else None,
        None,
    )


_correlate = Operator(_correlate_operator, batched=2, save=_save, backward=_backward, bilinear=True)
