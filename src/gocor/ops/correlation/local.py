"""Local correlation and its two adjoints: public functions over custom operators.

The three operators are bilinear and closed under differentiation (the gradient of each is made of the other two), so
they can be differentiated any number of times.
"""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ...utils.checks import Normalize, check_count, check_feature_pair, check_volume, exporting, scale_of
from ..kernels import DTYPES, can_correlate, kernels
from . import matmul as local_tiled
from . import reference as local_reference


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
    return _call(_correlate, local_reference.correlate, reference, query, radius, normalize)


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
    return _call(_adjoint_reference, local_reference.adjoint_reference, volume, query, radius, normalize)


def local_correlation_adjoint_query(
    volume: Tensor, reference: Tensor, radius: int = 4, *, normalize: Normalize = "mean"
) -> Tensor:
    """Adjoint of `local_correlation` with respect to its query: `norm · Σ_d volume[d, p-d] · reference[:, p-d]`.

    Arguments and result as in `local_correlation_adjoint_reference`, with the reference map in place of the query's.
    """
    check_count("radius", radius)
    _check_local_volume(volume, "reference", reference, radius)
    return _call(_adjoint_query, local_reference.adjoint_query, volume, reference, radius, normalize)


def transpose_local_volume(volume: Tensor, radius: int = 4) -> Tensor:
    """A local volume seen from the other image: `out[d, p] = volume[-d, p+d]`, zero where `p+d` is outside.

    `transpose_local_volume(local_correlation(a, b)) == local_correlation(b, a)`.
    """
    check_count("radius", radius)
    _check_local_volume(volume, "volume", volume, radius)
    return local_reference.transpose_volume(volume, radius)


def _check_local_volume(volume: Tensor, name: str, features: Tensor, radius: int) -> None:
    shape = tuple(features.shape)
    check_volume("volume", volume, name, features, (*shape[:1], (2 * radius + 1) ** 2, *shape[2:]))


def _call(
    operator: Callable[..., Tensor],
    specification: Callable[..., Tensor],
    a: Tensor,
    features: Tensor,
    radius: int,
    normalize: Normalize,
) -> Tensor:
    scale = scale_of(normalize, features.shape[1])
    if exporting():
        return specification(a, features, radius, scale)
    with torch.autocast(features.device.type, enabled=False):  # the operators choose their own precision
        return operator(a, features, radius, scale)


def _form(features: Tensor, radius: int) -> Any:
    """The fastest form for these features: kernels on a GPU that has Triton, compiled loops on a CPU that has Numba.

    Elsewhere matrix products, or slices where the window is small: few passes, and most of a product would be thrown
    away.
    """
    if can_correlate(features, radius):
        return kernels()
    if features.device.type == "cpu" and features.dtype in DTYPES and (loops := _loops()):
        return loops
    return local_reference if radius <= 1 else local_tiled


@cache
def _loops() -> ModuleType | None:
    """Loops compiled by Numba: none where it is not installed, does not fit NumPy or is switched off."""
    try:
        from . import numba as local_numba
    except (ImportError, OSError):
        return None
    return local_numba


@torch.library.custom_op("gocor::local_correlation", mutates_args=())
def _correlate(reference: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    return _form(query, radius).correlate(reference, query, radius, scale).contiguous()


@torch.library.custom_op("gocor::local_correlation_adjoint_reference", mutates_args=())
def _adjoint_reference(volume: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    return _form(query, radius).adjoint_reference(volume, query, radius, scale).contiguous()


@torch.library.custom_op("gocor::local_correlation_adjoint_query", mutates_args=())
def _adjoint_query(volume: Tensor, reference: Tensor, radius: int, scale: float) -> Tensor:
    return _form(reference, radius).adjoint_query(volume, reference, radius, scale).contiguous()


@_correlate.register_fake
def _(reference: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    batch, _, height, width = reference.shape
    return reference.new_empty(batch, (2 * radius + 1) ** 2, height, width)


@_adjoint_reference.register_fake
@_adjoint_query.register_fake
def _(volume: Tensor, features: Tensor, radius: int, scale: float) -> Tensor:
    return features.new_empty(features.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, int, float], output: Tensor) -> None:
    first, second, ctx.radius, ctx.scale = inputs
    ctx.save_for_backward(first, second)


def _gradients(of_first: Callable[..., Tensor], of_second: Callable[..., Tensor]) -> Callable[..., Any]:
    """Backward rule of a bilinear operator `(first, second)`, from its two adjoints `(grad, first, second)`."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        first, second = ctx.saved_tensors
        need_first, need_second = ctx.needs_input_grad[:2]
        return (
            of_first(grad, first, second, ctx.radius, ctx.scale) if need_first else None,
            of_second(grad, first, second, ctx.radius, ctx.scale) if need_second else None,
            None,
            None,
        )

    return backward


_correlate.register_autograd(
    _gradients(
        lambda grad, reference, query, *options: _adjoint_reference(grad, query, *options),
        lambda grad, reference, query, *options: _adjoint_query(grad, reference, *options),
    ),
    setup_context=_save,
)
_adjoint_reference.register_autograd(
    _gradients(
        lambda grad, volume, query, *options: _correlate(grad, query, *options),
        lambda grad, volume, query, *options: _adjoint_query(volume, grad, *options),
    ),
    setup_context=_save,
)
_adjoint_query.register_autograd(
    _gradients(
        lambda grad, volume, reference, *options: _correlate(reference, grad, *options),
        lambda grad, volume, reference, *options: _adjoint_reference(volume, grad, *options),
    ),
    setup_context=_save,
)
