"""Local correlation and its two adjoints: public functions over custom operators.

The three operators are bilinear and closed under differentiation (the gradients of each are made of the other two), so
they can be differentiated any number of times.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ...utils.checks import Normalize, check_count, check_feature_pair, check_volume, scale_of
from .. import select
from ..transforms import Operator
from . import exported
from . import reference as specification


def local_correlation(reference: Tensor, query: Tensor, radius: int = 4, *, normalize: Normalize = "mean") -> Tensor:
    """Scalar products of each reference pixel with the query pixels around it (paper, eq. 2).

    `out[b, (dy+R)(2R+1) + (dx+R), y, x] = norm · Σ_c reference[b, c, y, x] · query[b, c, y+dy, x+dx]`, zero outside
    the query.

    Args:
        reference: feature map `(B, C, H, W)`.
        query: feature map of the same shape, dtype and device.
        radius: search radius R ≥ 0.
        normalize: `"mean"` over channels (norm = 1/C), as in the published local layers, or `"sum"` (norm = 1).

    Returns:
        Correspondence volume `(B, (2R+1)², H, W)`. 16-bit inputs are accumulated in float32.
    """
    check_count("radius", radius)
    reference, query = check_feature_pair(reference, query, same_size=True)
    return correlate(reference, query, radius, scale_of(normalize, query.shape[1]))


def local_correlation_adjoint_reference(
    volume: Tensor, query: Tensor, radius: int = 4, *, normalize: Normalize = "mean"
) -> Tensor:
    """Adjoint of `local_correlation` with respect to its reference: `norm · Σ_d volume[d, p] · query[:, p+d]`.

    Args:
        volume: `(B, (2R+1)², H, W)`.
        query: feature map `(B, C, H, W)`.
        radius: R of the correlation.
        normalize: as in `local_correlation`.

    Returns:
        Map `(B, C, H, W)`.
    """
    check_count("radius", radius)
    _check_local_volume(volume, "query", query, radius)
    return adjoint_reference(volume, query, radius, scale_of(normalize, query.shape[1]))


def local_correlation_adjoint_query(
    volume: Tensor, reference: Tensor, radius: int = 4, *, normalize: Normalize = "mean"
) -> Tensor:
    """Adjoint of `local_correlation` with respect to its query: `norm · Σ_d volume[d, p-d] · reference[:, p-d]`.

    Arguments and result are those of `local_correlation_adjoint_reference`, with the reference map in place of the
    query's.
    """
    check_count("radius", radius)
    _check_local_volume(volume, "reference", reference, radius)
    scale = scale_of(normalize, reference.shape[1])
    if select.exporting():
        return specification.adjoint_query(volume, reference, radius, scale)
    with torch.autocast(reference.device.type, enabled=False):
        return _adjoint_query(volume, reference, radius, scale, reference.dtype, False)


def transpose_local_volume(volume: Tensor, radius: int = 4) -> Tensor:
    """A local volume as seen from the other image: `out[d, p] = volume[-d, p+d]`, zero where `p+d` is outside.

    `transpose_local_volume(local_correlation(a, b)) == local_correlation(b, a)`.
    """
    check_count("radius", radius)
    _check_local_volume(volume, "volume", volume, radius)
    return specification.transpose_volume(volume, radius)


def correlate(
    reference: Tensor,
    query: Tensor,
    radius: int,
    scale: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    exact: bool = False,
) -> Tensor:
    """`local_correlation` without checks, of operands that may differ in dtype.

    Args:
        reference: `(B, C, H, W)`.
        query: `(B, C, H, W)`.
        radius: R.
        scale: factor of the products.
        dtype: dtype of the result; the reference's by default.
        exact: never round operands to TF32, even where torch allows it. An iterative optimisation needs this.
    """
    if select.exporting():
        return exported.correlate(reference, query, radius, scale, dtype=dtype)
    with torch.autocast(query.device.type, enabled=False):  # the operators choose their own precision
        return _correlate(reference, query, radius, scale, dtype or reference.dtype, exact)


def adjoint_reference(volume: Tensor, query: Tensor, radius: int, scale: float = 1.0, *, exact: bool = False) -> Tensor:
    """`local_correlation_adjoint_reference` without checks; arguments as in `correlate`."""
    if select.exporting():
        return exported.adjoint_reference(volume, query, radius, scale)
    with torch.autocast(query.device.type, enabled=False):
        return _adjoint_reference(volume, query, radius, scale, query.dtype, exact)


def _check_local_volume(volume: Tensor, name: str, features: Tensor, radius: int) -> None:
    shape = tuple(features.shape)
    check_volume("volume", volume, name, features, (*shape[:1], (2 * radius + 1) ** 2, *shape[2:]))


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"{__package__}.{name}")


def _run(
    name: str, first: Tensor, features: Tensor, radius: int, scale: float, dtype: torch.dtype, exact: bool
) -> Tensor:
    form = select.choose_correlation(features, radius)
    options: dict[str, Any] = {"exact": exact} if form == "triton" else {}  # only tensor cores round
    return getattr(_module(form), name)(first, features, radius, scale, dtype=dtype, **options).contiguous()


@torch.library.custom_op("gocor::local_correlation", mutates_args=())
def _correlate_operator(
    reference: Tensor, query: Tensor, radius: int, scale: float, dtype: torch.dtype, exact: bool
) -> Tensor:
    return _run("correlate", reference, query, radius, scale, dtype, exact)


@torch.library.custom_op("gocor::local_correlation_adjoint_reference", mutates_args=())
def _adjoint_reference_operator(
    volume: Tensor, query: Tensor, radius: int, scale: float, dtype: torch.dtype, exact: bool
) -> Tensor:
    return _run("adjoint_reference", volume, query, radius, scale, dtype, exact)


@torch.library.custom_op("gocor::local_correlation_adjoint_query", mutates_args=())
def _adjoint_query_operator(
    volume: Tensor, reference: Tensor, radius: int, scale: float, dtype: torch.dtype, exact: bool
) -> Tensor:
    return _run("adjoint_query", volume, reference, radius, scale, dtype, exact)


@_correlate_operator.register_fake
def _(reference: Tensor, query: Tensor, radius: int, scale: float, dtype: torch.dtype, exact: bool) -> Tensor:
    batch, _, height, width = reference.shape
    return reference.new_empty(batch, (2 * radius + 1) ** 2, height, width, dtype=dtype)


@_adjoint_reference_operator.register_fake
@_adjoint_query_operator.register_fake
def _(volume: Tensor, features: Tensor, radius: int, scale: float, dtype: torch.dtype, exact: bool) -> Tensor:
    return features.new_empty(features.shape, dtype=dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    first, second, ctx.radius, ctx.scale, _, ctx.exact = inputs
    ctx.save_for_backward(first, second)


def _gradients(of_first: Callable[..., Tensor], of_second: Callable[..., Tensor]) -> Callable[..., Any]:
    """Backward rule of a bilinear operator `(first, second)`, from its two adjoints `(grad, first, second)`."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        first, second = ctx.saved_tensors
        need_first, need_second = ctx.needs_input_grad[:2]
        options = ctx.radius, ctx.scale
        return (
            of_first(grad, first, second, *options, first.dtype, ctx.exact) if need_first else None,
            of_second(grad, first, second, *options, second.dtype, ctx.exact) if need_second else None,
            *[None] * 4,
        )

    return backward


_correlate: Operator = Operator(
    _correlate_operator,
    batched=2,
    save=_save,
    backward=_gradients(
        lambda grad, reference, query, *options: _adjoint_reference(grad, query, *options),
        lambda grad, reference, query, *options: _adjoint_query(grad, reference, *options),
    ),
    bilinear=True,
)
_adjoint_reference: Operator = Operator(
    _adjoint_reference_operator,
    batched=2,
    save=_save,
    backward=_gradients(
        lambda grad, volume, query, *options: _correlate(grad, query, *options),
        lambda grad, volume, query, *options: _adjoint_query(volume, grad, *options),
    ),
    bilinear=True,
)
_adjoint_query: Operator = Operator(
    _adjoint_query_operator,
    batched=2,
    save=_save,
    backward=_gradients(
        lambda grad, volume, reference, *options: _correlate(reference, grad, *options),
        lambda grad, volume, reference, *options: _adjoint_reference(volume, grad, *options),
    ),
    bilinear=True,
)
