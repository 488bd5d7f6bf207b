"""`lookup` in one level of the query as a Triton kernel: memory and time grow with the number of filters alone.

One program takes one filter. It multiplies the filter with the query features at the (2R+2)² integer positions around
its own, some channels at a time, and interpolates the scores. Query features are channels last, so that the channels of
a position are contiguous.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton import strides

CHANNELS = 32  # channels that are read at a time


@triton.jit
def _lookup_kernel(
    filters, query, coordinates, scratch, out, H, W, Hq, Wq, fb, fc, fp, qb,
    C: tl.constexpr, R: tl.constexpr, SIDE: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    pixel, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    at = coordinates + batch * 2 * H * W + pixel
    x, y = tl.load(at), tl.load(at + H * W)
    FAR: tl.constexpr = 2 * R + 4
    x = tl.where(x == x, tl.minimum(tl.maximum(x, -FAR), Wq + FAR), -FAR)  # NaN is far outside
    y = tl.where(y == y, tl.minimum(tl.maximum(y, -FAR), Hq + FAR), -FAR)
    left, top = tl.floor(x), tl.floor(y)
    fx, fy = x - left, y - top
    i = tl.arange(0, SIDE * SIDE)
    row, column = top.to(tl.int32) - R + i // SIDE, left.to(tl.int32) - R + i % SIDE
    used = (i // SIDE < 2 * R + 2) & (i % SIDE < 2 * R + 2)
    inside = used & (row >= 0) & (row < Hq) & (column >= 0) & (column < Wq)
    position = query + batch * qb + (row * Wq + column).to(tl.int64) * C
    own = filters + batch * fb + pixel.to(tl.int64) * fp
    scores = tl.zeros((SIDE * SIDE,), tl.float32)
    for first in range(0, C, BLOCK_C):
        c = first + tl.arange(0, BLOCK_C)
        w = tl.load(own + c * fc, c < C, 0.0).to(tl.float32)
        f = tl.load(position[:, None] + c[None, :], inside[:, None] & (c < C)[None, :], 0.0).to(tl.float32)
        scores += tl.sum(f * w[None, :], 1)
    # Bilinear interpolation needs the neighbours' scores, which other threads hold.
    own_scratch = scratch + (batch * H * W + pixel) * (SIDE * SIDE)
    tl.store(own_scratch + i, scores)
    tl.debug_barrier()
    wanted = (i // SIDE < 2 * R + 1) & (i % SIDE < 2 * R + 1)
    a, b = tl.load(own_scratch + i, wanted, 0.0), tl.load(own_scratch + i + 1, wanted, 0.0)
    c0, d = tl.load(own_scratch + i + SIDE, wanted, 0.0), tl.load(own_scratch + i + SIDE + 1, wanted, 0.0)
    upper, lower = a + fx * (b - a), c0 + fx * (d - c0)
    K: tl.constexpr = (2 * R + 1) * (2 * R + 1)
    channel = (i // SIDE) * (2 * R + 1) + i % SIDE
    to = out + (batch * K + channel) * H * W + pixel
    tl.store(to, (upper + fy * (lower - upper)).to(out.dtype.element_ty), wanted)


def lookup(filters: Tensor, query: Tensor, coordinates: Tensor, radius: int) -> Tensor:
    """Scores `(B, (2R+1)², H, W)` in one level of the query, in its dtype; see `lookups.lookup`."""
    batch, channels, height, width = filters.shape
    filters = filters if filters.is_contiguous(memory_format=torch.channels_last) else filters.contiguous()
    query, coordinates = query.contiguous(memory_format=torch.channels_last), coordinates.contiguous()
    side = triton.next_power_of_2(2 * radius + 2)
    out = query.new_empty(batch, (2 * radius + 1) ** 2, height, width)
    if out.numel():
        scratch = query.new_empty(batch, height * width, side * side, dtype=torch.float32)
        _lookup_kernel[(height * width, batch)](
            filters, query, coordinates, scratch, out, height, width, query.shape[2], query.shape[3],
            *strides(filters), channels * query.shape[2] * query.shape[3], C=channels, R=radius, SIDE=side,
            BLOCK_C=CHANNELS, num_warps=4 if side >= 16 else 2,
        )  # fmt: skip
    return out
