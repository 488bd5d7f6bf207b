"""`lookup` in one level of the query, and its gradients, as Triton kernels.

Their memory and time grow with the number of filters alone.

One program takes one filter. It multiplies the filter with the query features at the (2R+2)² integer positions around
its own, some channels at a time, and interpolates the scores. The gradient of the filter is gathered from the same
positions. The gradient of the query is added there atomically. Features and scores are channels last, so that the
channels of a position are contiguous.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton import strides

CHANNELS = 32  # channels that are read at a time


@triton.jit
def _window(coordinates, pixel, batch, H, W, Hq, Wq, R: tl.constexpr, SIDE: tl.constexpr):
    """Integer positions around a filter's own: index, whether it is inside, flat position; and fractional parts."""
    at = coordinates + batch * 2 * H * W + pixel
    x, y = tl.load(at), tl.load(at + H * W)
    FAR: tl.constexpr = 2 * R + 4
    x = tl.where(x == x, tl.minimum(tl.maximum(x, -FAR), Wq + FAR), -FAR)  # NaN is far outside
    y = tl.where(y == y, tl.minimum(tl.maximum(y, -FAR), Hq + FAR), -FAR)
    left, top = tl.floor(x), tl.floor(y)
    i = tl.arange(0, SIDE * SIDE)
    row, column = top.to(tl.int32) - R + i // SIDE, left.to(tl.int32) - R + i % SIDE
    used = (i // SIDE < 2 * R + 2) & (i % SIDE < 2 * R + 2)
    inside = used & (row >= 0) & (row < Hq) & (column >= 0) & (column < Wq)
    return i, inside, row * Wq + column, x - left, y - top


@triton.jit
def _lookup_kernel(
    filters, query, coordinates, scratch, out, H, W, Hq, Wq, fb, fc, fp, qb,
    C: tl.constexpr, R: tl.constexpr, SIDE: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    pixel, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, inside, position, fx, fy = _window(coordinates, pixel, batch, H, W, Hq, Wq, R, SIDE)
    at = query + batch * qb + position.to(tl.int64) * C
    own = filters + batch * fb + pixel.to(tl.int64) * fp
    scores = tl.zeros((SIDE * SIDE,), tl.float32)
    for first in range(0, C, BLOCK_C):
        c = first + tl.arange(0, BLOCK_C)
        w = tl.load(own + c * fc, c < C, 0.0).to(tl.float32)
        f = tl.load(at[:, None] + c[None, :], inside[:, None] & (c < C)[None, :], 0.0).to(tl.float32)
        scores += tl.sum(f * w[None, :], 1)
    # Bilinear interpolation needs the neighbours' scores. Other threads hold them, so they go through memory.
    own_scratch = scratch + (batch * H * W + pixel) * (SIDE * SIDE)
    tl.store(own_scratch + i, scores)
    tl.debug_barrier()
    wanted = (i // SIDE < 2 * R + 1) & (i % SIDE < 2 * R + 1)
    a, b = tl.load(own_scratch + i, wanted, 0.0), tl.load(own_scratch + i + 1, wanted, 0.0)
    c0, d = tl.load(own_scratch + i + SIDE, wanted, 0.0), tl.load(own_scratch + i + SIDE + 1, wanted, 0.0)
    upper, lower = a + fx * (b - a), c0 + fx * (d - c0)
    K: tl.constexpr = (2 * R + 1) * (2 * R + 1)
    to = out + (batch * H * W + pixel) * K + (i // SIDE) * (2 * R + 1) + i % SIDE
    tl.store(to, (upper + fy * (lower - upper)).to(out.dtype.element_ty), wanted)


@triton.jit
def _gradient_at(own, row, column, R: tl.constexpr):
    """Gradients of a filter's scores at some displacements, zero outside of its window."""
    SIDE: tl.constexpr = 2 * R + 1
    inside = (row >= 0) & (row < SIDE) & (column >= 0) & (column < SIDE)
    return tl.load(own + row * SIDE + column, inside, 0.0).to(tl.float32)


@triton.jit
def _lookup_backward_kernel(
    grad, filters, query, coordinates, bar_filters, bar_query, H, W, Hq, Wq, fb, fc, fp, qb,
    OF_FILTERS: tl.constexpr, OF_QUERY: tl.constexpr,
    C: tl.constexpr, R: tl.constexpr, SIDE: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    pixel, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, inside, position, fx, fy = _window(coordinates, pixel, batch, H, W, Hq, Wq, R, SIDE)
    K: tl.constexpr = (2 * R + 1) * (2 * R + 1)
    scores = grad + (batch * H * W + pixel) * K
    row, column = i // SIDE, i % SIDE
    here, above = _gradient_at(scores, row, column, R), _gradient_at(scores, row - 1, column, R)
    before, both = _gradient_at(scores, row, column - 1, R), _gradient_at(scores, row - 1, column - 1, R)
    spread = (1 - fy) * ((1 - fx) * here + fx * before) + fy * ((1 - fx) * above + fx * both)
    spread = tl.where(inside, spread, 0.0)
    at = batch * qb + position.to(tl.int64) * C
    own = filters + batch * fb + pixel.to(tl.int64) * fp
    for first in range(0, C, BLOCK_C):
        c = first + tl.arange(0, BLOCK_C)
        used = inside[:, None] & (c < C)[None, :]
        to = at[:, None] + c[None, :]
        if OF_FILTERS:
            f = tl.load(query + to, used, 0.0).to(tl.float32)
            tl.store(bar_filters + (batch * H * W + pixel) * C + c, tl.sum(f * spread[:, None], 0), c < C)
        if OF_QUERY:
            w = tl.load(own + c * fc, c < C, 0.0).to(tl.float32)
            tl.atomic_add(bar_query + to, spread[:, None] * w[None, :], used, sem="relaxed")


def lookup(filters: Tensor, query: Tensor, coordinates: Tensor, radius: int) -> Tensor:
    """Scores `(B, (2R+1)², H, W)` in one level of the query, in its dtype and channels last; see `lookups.lookup`."""
    batch, channels, height, width = filters.shape
    filters, query, coordinates = _arranged(filters, query, coordinates)
    side = triton.next_power_of_2(2 * radius + 2)
    out = query.new_empty(batch, height, width, (2 * radius + 1) ** 2).permute(0, 3, 1, 2)
    if out.numel():
        scratch = query.new_empty(batch, height * width, side * side, dtype=torch.float32)
        _lookup_kernel[(height * width, batch)](
            filters, query, coordinates, scratch, out, height, width, query.shape[2], query.shape[3],
            *strides(filters), channels * query.shape[2] * query.shape[3], C=channels, R=radius, SIDE=side,
            BLOCK_C=CHANNELS, num_warps=4 if side >= 16 else 2,
        )  # fmt: skip
    return out


def lookup_backward(
    grad: Tensor, filters: Tensor, query: Tensor, coordinates: Tensor, radius: int, of_filters: bool, of_query: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of `lookup` with respect to filters and query, in float32, channels last; `None` if not asked for."""
    batch, channels, height, width = filters.shape
    filters, query, coordinates = _arranged(filters, query, coordinates)
    bar_filters = bar_query = None
    if of_filters:
        bar_filters = torch.empty_like(filters, dtype=torch.float32, memory_format=torch.channels_last)
    if of_query:
        bar_query = torch.zeros_like(query, dtype=torch.float32, memory_format=torch.channels_last)
    if grad.numel():
        side = triton.next_power_of_2(2 * radius + 2)
        _lookup_backward_kernel[(height * width, batch)](
            grad.contiguous(memory_format=torch.channels_last), filters, query, coordinates, bar_filters, bar_query,
            height, width, query.shape[2], query.shape[3], *strides(filters),
            channels * query.shape[2] * query.shape[3], OF_FILTERS=of_filters, OF_QUERY=of_query,
            C=channels, R=radius, SIDE=side, BLOCK_C=CHANNELS, num_warps=4 if side >= 16 else 2,
        )  # fmt: skip
    return bar_filters, bar_query


def _arranged(filters: Tensor, query: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Filters in either memory format, the query channels last, contiguous coordinates."""
    filters = filters if filters.is_contiguous(memory_format=torch.channels_last) else filters.contiguous()
    return filters, query.contiguous(memory_format=torch.channels_last), coordinates.contiguous()
