"""Local GOCor in a few launches, as one custom operator: autocorrelation, all iterations, filters, volume.

The iterations run in Gram space, see `ops.gram_reference`. The backward pass computes them anew, so little is kept
between the two. Features may have 16 bits: products are accumulated, and iterations run, in float32.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..correlation import reference as local_reference
from ..kernels import gram_kernels, kernels, supported
from . import gram_reference
from .gram_reference import Options


def fused_volume(reference: Tensor, query: Tensor, parameters: tuple[Tensor, ...], options: Options) -> Tensor:
    """The volume of local GOCor without query term, with the simple initialiser.

    Args:
        reference: `(B, D, H, W)`, float32 or 16 bits.
        query: of the same shape and dtype.
        parameters: see `gram_reference.descend`.
        options: see `gram_reference.descend`.

    Returns:
        `(B, (2R+1)², H, W)` in the features' dtype. Differentiable once.
    """
    return _local_gocor(reference, query, *parameters, *options)[0]


def _forms(device: torch.device) -> tuple[ModuleType | None, ModuleType]:
    """Kernels of local correlation and of the iterations, or their plain forms where the device cannot run kernels."""
    return (kernels(), gram_kernels()) if supported(device) else (None, gram_reference)


@torch.library.custom_op("gocor::local_gocor", mutates_args=())
def _local_gocor(
    reference: Tensor, query: Tensor, beta: Tensor, bend: Tensor, slant: Tensor, goal: Tensor, regularization: Tensor,
    step_factor: Tensor, radius: int, iters: int, eta: float, floor: float, stabilizer: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    local, iterations = _forms(reference.device)
    parameters = beta, bend, slant, goal, regularization, step_factor
    options = Options(radius, iters, eta, floor, stabilizer)
    coefficients = iterations.descend(_source(local, reference, radius), parameters, options)
    filters = _adjoint(local, coefficients, reference, radius, "reference")
    return _correlate(local, filters, query, radius, reference.dtype), coefficients


@torch.library.custom_op("gocor::local_gocor_backward", mutates_args=())
def _local_gocor_backward(
    grad: Tensor, coefficients: Tensor, reference: Tensor, query: Tensor, beta: Tensor, bend: Tensor, slant: Tensor,
    goal: Tensor, regularization: Tensor, step_factor: Tensor, radius: int, iters: int, eta: float, floor: float,
    stabilizer: float, need_reference: bool, need_query: bool,
) -> list[Tensor]:  # fmt: skip
    local, iterations = _forms(reference.device)
    parameters = beta, bend, slant, goal, regularization, step_factor
    options = Options(radius, iters, eta, floor, stabilizer)
    # volume = C(w, f^q) and w = Cᵀ(b, f^r)
    bar_query = query.new_empty(0)
    if need_query:
        filters = _adjoint(local, coefficients, reference, radius, "reference")
        bar_query = _adjoint(local, grad, filters, radius, "query", query.dtype)  # lies in memory as the reference does
    bar_filters = _adjoint(local, grad, query, radius, "reference")
    bar_coefficients = _correlate(local, bar_filters, reference, radius, torch.float32)
    source = _source(local, reference, radius)
    gradients = iterations.descend_gradients(bar_coefficients, source, parameters, options, of_gram=need_reference)
    bar_reference = reference.new_empty(0)
    if need_reference:  # A's entries are products of features in both places
        bar_reference = _adjoint(local, gradients.gram, reference, 2 * radius, "both")
        bar_reference += _adjoint(local, coefficients, bar_filters, radius, "query")
        bar_reference = bar_reference.to(reference.dtype)
    bars = [bar.reshape(p.shape).clone() for bar, p in zip(gradients[1:], parameters, strict=True)]
    return [bar_reference, bar_query, *bars]


def _correlate(local: ModuleType | None, filters: Tensor, features: Tensor, radius: int, dtype: torch.dtype) -> Tensor:
    if local is not None:
        return local.correlate(filters, features, radius, 1.0, dtype=dtype)
    return local_reference.correlate(filters, features.to(filters.dtype), radius, 1.0).to(dtype)


def _source(local: ModuleType | None, features: Tensor, radius: int) -> Tensor:
    """What the iterations take: kernels the features, their plain form the autocorrelation `(B, H, W, (4R+1)²)`."""
    if local is not None:
        return features
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    return local_reference.correlate(features, features, 2 * radius, 1.0).permute(0, 2, 3, 1).contiguous()


def _adjoint(
    local: ModuleType | None, volume: Tensor, features: Tensor, radius: int, side: str, dtype: torch.dtype | None = None
) -> Tensor:
    """An adjoint of the correlation, or their sum, in float32 unless another dtype is asked for."""
    dtype = dtype or torch.promote_types(features.dtype, torch.float32)
    if local is not None:
        return local.adjoint(volume, features, radius, 1.0, side, dtype=dtype)
    volume, features = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (volume, features))
    names = ("reference", "query") if side == "both" else (side,)
    parts = [getattr(local_reference, f"adjoint_{name}")(volume, features, radius, 1.0) for name in names]
    return sum(parts[1:], parts[0]).to(dtype)


@_local_gocor.register_fake
def _(reference: Tensor, query: Tensor, *parameters: Any) -> tuple[Tensor, Tensor]:
    batch, _, height, width = reference.shape
    shape = batch, (2 * parameters[6] + 1) ** 2, height, width
    compute = torch.promote_types(reference.dtype, torch.float32)
    return reference.new_empty(shape), reference.new_empty(shape, dtype=compute)


@_local_gocor_backward.register_fake
def _(grad: Tensor, coefficients: Tensor, reference: Tensor, query: Tensor, *rest: Any) -> list[Tensor]:
    need_reference, need_query = rest[-2:]
    bars = [x.new_empty(x.shape) for x in rest[:6]]
    like = reference if reference.is_contiguous(memory_format=torch.channels_last) else reference.contiguous()
    of_features = [torch.empty_like(like) if needed else like.new_empty(0) for needed in (need_reference, need_query)]
    return [*of_features, *bars]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs[:8])
    ctx.options = inputs[8:]


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad[:2]
    gradients = _local_gocor_backward(grad.contiguous(), *ctx.saved_tensors, *ctx.options, *needs)
    features = (bar if needed else None for bar, needed in zip(gradients[:2], needs, strict=True))
    return *features, *gradients[2:], None, None, None, None, None


_local_gocor.register_autograd(_backward, setup_context=_save)
