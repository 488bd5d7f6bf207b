"""Local correlation, its adjoints and the fused steepest descent of local GOCor as Triton kernels.

A program takes a tile of TY×TX filters. The query pixels that they can reach lie in TY+2R rows of TX+2R; products of
the tile with such a row (or with all of them at once, in the fused kernel) run on matrix units, and the displacements
are a band of the result. Everything is held to `local_reference` and to the readable iteration by tests.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

__all__ = ["OutOfResources", "adjoint_query", "adjoint_reference", "correlate", "descend"]

TY, TX = 8, 8  # tile of the correlation and of its adjoints
FUSED_TY, FUSED_ROWS, FUSED_COLUMNS = 4, 16, 16  # tile rows of the fused kernel, and its window, for R ≤ 4


# Full precision on matrix units is three products of 11 bits each, as exact as float32. The fused kernel would need
# more shared memory for it than there is, and multiplies without matrix units.
FULL_PRECISION, FUSED_FULL_PRECISION = "tf32x3", "ieee"
FUSED_WARPS, FUSED_STAGES, FUSED_BLOCK = 8, 2, 32


def precision(dtype: torch.dtype, full: str = FULL_PRECISION) -> str:
    """How products of float32 are made: in one pass of 11 bits where torch's own matrix products are, else in full."""
    return "tf32" if dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32 else full


@triton.jit
def _correlate_kernel(
    reference, query, volume, H, W, tiles_x, scale,
    C: tl.constexpr, R: tl.constexpr, KEYS: tl.constexpr, TY: tl.constexpr, TX: tl.constexpr,
    BLOCK_C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile, row, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    f = tl.arange(0, TY * TX)
    y, x = tile // tiles_x * TY + f // TX, tile % tiles_x * TX + f % TX
    ky, kx = tile // tiles_x * TY - R + row, tile % tiles_x * TX - R + tl.arange(0, KEYS)
    in_filters = (y < H) & (x < W)
    in_keys = (ky >= 0) & (ky < H) & (kx >= 0) & (kx < W)
    acc = tl.zeros((TY * TX, KEYS), tl.float32)
    for start in range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        plane = (batch * C + c) * H * W
        a = tl.load(reference + plane[None, :] + (y * W + x)[:, None], in_filters[:, None] & (c < C)[None, :], 0.0)
        k = tl.load(query + plane[:, None] + (ky * W + kx)[None, :], (c < C)[:, None] & in_keys[None, :], 0.0)
        acc = tl.dot(a, k, acc, input_precision=PRECISION)
    dy, dx = ky - y[:, None], kx[None, :] - x[:, None]
    keep = in_filters[:, None] & (dy >= -R) & (dy <= R) & (dx >= -R) & (dx <= R)
    channel = (dy + R) * (2 * R + 1) + dx + R
    to = (batch * (2 * R + 1) * (2 * R + 1) + channel) * H * W + (y * W + x)[:, None]
    tl.store(volume + to, (acc * scale).to(volume.dtype.element_ty), keep)


@triton.jit
def _adjoint_kernel(
    volume, features, out, H, W, tiles_x, scale, FROM_QUERY: tl.constexpr,
    C: tl.constexpr, R: tl.constexpr, KEYS: tl.constexpr, TY: tl.constexpr, TX: tl.constexpr,
    BLOCK_C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile, block, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    f = tl.arange(0, TY * TX)
    y, x = tile // tiles_x * TY + f // TX, tile % tiles_x * TX + f % TX
    kx = tile % tiles_x * TX - R + tl.arange(0, KEYS)
    c = block * BLOCK_C + tl.arange(0, BLOCK_C)
    plane = (batch * C + c) * H * W
    in_filters = (y < H) & (x < W)
    acc = tl.zeros((TY * TX, BLOCK_C), tl.float32)
    for row in range(0, TY + 2 * R):
        ky = tile // tiles_x * TY - R + row
        in_keys = (ky >= 0) & (ky < H) & (kx >= 0) & (kx < W)
        dy, dx = ky - y[:, None], kx[None, :] - x[:, None]
        keep = in_filters[:, None] & in_keys[None, :] & (dy >= -R) & (dy <= R) & (dx >= -R) & (dx <= R)
        if FROM_QUERY:  # the volume seen from the query: displacement −d, at the key
            channel = (R - dy) * (2 * R + 1) + R - dx
            at = tl.broadcast_to((ky * W + kx)[None, :], (TY * TX, KEYS))
        else:
            channel = (dy + R) * (2 * R + 1) + dx + R
            at = tl.broadcast_to((y * W + x)[:, None], (TY * TX, KEYS))
        u = tl.load(volume + (batch * (2 * R + 1) * (2 * R + 1) + channel) * H * W + at, keep, 0.0)
        k = tl.load(features + plane[None, :] + (ky * W + kx)[:, None], in_keys[:, None] & (c < C)[None, :], 0.0)
        acc = tl.dot(u, k, acc, input_precision=PRECISION)
    to = plane[None, :] + (y * W + x)[:, None]
    tl.store(out + to, (acc * scale).to(out.dtype.element_ty), in_filters[:, None] & (c < C)[None, :])


@triton.jit
def _descend_kernel(
    features, filters, gradient, target, weight, mask, regularization, step_factor, H, W, tiles_x, floor,
    ITERS: tl.constexpr, ETA: tl.constexpr, C: tl.constexpr, R: tl.constexpr, TY: tl.constexpr, TX: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    f, k = tl.arange(0, TY * TX), tl.arange(0, ROWS * COLUMNS)
    y, x = tile // tiles_x * TY + f // TX, tile % tiles_x * TX + f % TX
    ky, kx = tile // tiles_x * TY - R + k // COLUMNS, tile % tiles_x * TX - R + k % COLUMNS
    in_filters = (y < H) & (x < W)
    in_keys = (ky >= 0) & (ky < H) & (kx >= 0) & (kx < W)
    dy, dx = ky[None, :] - y[:, None], kx[None, :] - x[:, None]
    band = in_filters[:, None] & (dy >= -R) & (dy <= R) & (dx >= -R) & (dx <= R)
    channel = tl.where(band, (dy + R) * (2 * R + 1) + dx + R, 0)
    decay, factor = tl.load(regularization), tl.load(step_factor)

    scores = tl.zeros((TY * TX, ROWS * COLUMNS), tl.float32)
    for start in range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        plane = (batch * C + c) * H * W
        w = tl.load(filters + plane[None, :] + (y * W + x)[:, None], in_filters[:, None] & (c < C)[None, :], 0.0)
        keys = tl.load(features + plane[:, None] + (ky * W + kx)[None, :], (c < C)[:, None] & in_keys[None, :], 0.0)
        scores = tl.dot(w, keys, scores, input_precision=PRECISION)

    step = tl.zeros((TY * TX,), tl.float32)
    for iteration in range(0, ITERS):
        # Weights are zero outside the band, so everything beyond a filter's reach drops out here.
        v, m = tl.load(weight + channel, band, 0.0), tl.load(mask + channel, band, 0.0)
        if ETA == 0:
            magnitude = tl.abs(scores)
            direction = tl.where(scores > 0, 1.0, tl.where(scores < 0, -1.0, 0.0))
        else:
            root = tl.sqrt(scores * scores + ETA * ETA)
            magnitude, direction = root - ETA, scores / root
        slope = v * ((1 - m) * 0.5 * direction + (1 + m) * 0.5)
        residual = v * ((1 - m) * 0.5 * magnitude + (1 + m) * 0.5 * scores - tl.load(target + channel, band, 0.0))
        pull = slope * residual
        change = tl.zeros((TY * TX, ROWS * COLUMNS), tl.float32)
        numerator = tl.zeros((TY * TX,), tl.float32)
        for start in range(0, C, BLOCK_C):
            c = start + tl.arange(0, BLOCK_C)
            plane = (batch * C + c) * H * W
            own = plane[None, :] + (y * W + x)[:, None]
            known = in_filters[:, None] & (c < C)[None, :]
            keys = tl.load(features + plane[:, None] + (ky * W + kx)[None, :], (c < C)[:, None] & in_keys[None, :], 0.0)
            w = tl.load(filters + own, known, 0.0)
            if iteration > 0:  # the last iteration's update, made now that the filters are at hand
                w -= step[:, None] * tl.load(gradient + own, known, 0.0)
                tl.store(filters + own, w, known)
            g = tl.dot(pull, tl.trans(keys), decay * w, input_precision=PRECISION)
            tl.store(gradient + own, g, known)
            numerator += tl.sum(g * g, 1)
            change = tl.dot(g, keys, change, input_precision=PRECISION)
        along = slope * change
        denominator = tl.sum(along * along, 1) + decay * numerator
        step = factor * numerator / tl.maximum(denominator, floor)
        scores -= step[:, None] * change
    for start in range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        own = (batch * C + c)[None, :] * H * W + (y * W + x)[:, None]
        known = in_filters[:, None] & (c < C)[None, :]
        w = tl.load(filters + own, known, 0.0) - step[:, None] * tl.load(gradient + own, known, 0.0)
        tl.store(filters + own, w, known)


def correlate(reference: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.correlate`."""
    reference, query = reference.contiguous(), query.contiguous()
    batch, channels, height, width = reference.shape
    volume = reference.new_empty(batch, (2 * radius + 1) ** 2, height, width)
    tiles_y, tiles_x = triton.cdiv(height, TY), triton.cdiv(width, TX)
    if volume.numel():
        _correlate_kernel[(tiles_y * tiles_x, TY + 2 * radius, batch)](
            reference, query, volume, height, width, tiles_x, scale,
            C=channels, R=radius, KEYS=_keys(radius), TY=TY, TX=TX,
            BLOCK_C=_block(channels), PRECISION=precision(reference.dtype), num_warps=4,
        )  # fmt: skip
    return volume


def adjoint_reference(volume: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.adjoint_reference`."""
    return _adjoint(volume, query, radius, scale, from_query=False)


def adjoint_query(volume: Tensor, reference: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.adjoint_query`."""
    return _adjoint(volume, reference, radius, scale, from_query=True)


def descend(
    features: Tensor, filters: Tensor, maps: tuple[Tensor, Tensor, Tensor], regularization: Tensor, step_factor: Tensor,
    radius: int, iters: int, eta: float, floor: float,
) -> Tensor:  # fmt: skip
    """All iterations of local GOCor with the reference term, in one launch.

    Args:
        features: reference features `(B, D, H, W)`, float32.
        filters: w⁰ of the same shape.
        maps: y′, v⁺ and m by displacement, `((2R+1)²,)` each.
        regularization: λ², a scalar.
        step_factor: s, a scalar.
        radius: R ≤ 4.
        iters: number of iterations.
        eta: η of the robust function.
        floor: lower bound of the step's denominator.

    Returns:
        The filters `(B, D, H, W)`.
    """
    features, filters = features.contiguous(), filters.clone(memory_format=torch.contiguous_format)
    if iters == 0 or filters.numel() == 0:
        return filters
    batch, channels, height, width = features.shape
    tiles_y, tiles_x = triton.cdiv(height, FUSED_TY), triton.cdiv(width, TX)
    _descend_kernel[(tiles_y * tiles_x, batch)](
        features, filters, torch.empty_like(filters), *(m.contiguous() for m in maps), regularization, step_factor,
        height, width, tiles_x, floor, ITERS=iters, ETA=eta, C=channels, R=radius, TY=FUSED_TY, TX=TX, ROWS=FUSED_ROWS,
        COLUMNS=FUSED_COLUMNS, BLOCK_C=min(FUSED_BLOCK, _block(channels)),
        PRECISION=precision(features.dtype, FUSED_FULL_PRECISION), num_warps=FUSED_WARPS, num_stages=FUSED_STAGES,
    )  # fmt: skip
    return filters


def _adjoint(volume: Tensor, features: Tensor, radius: int, scale: float, *, from_query: bool) -> Tensor:
    volume, features = volume.contiguous(), features.contiguous()
    batch, channels, height, width = features.shape
    out = torch.empty_like(features)
    tiles_y, tiles_x, block = triton.cdiv(height, TY), triton.cdiv(width, TX), _block(channels)
    if out.numel():
        _adjoint_kernel[(tiles_y * tiles_x, triton.cdiv(channels, block), batch)](
            volume, features, out, height, width, tiles_x, scale, FROM_QUERY=from_query,
            C=channels, R=radius, KEYS=_keys(radius), TY=TY, TX=TX,
            BLOCK_C=block, PRECISION=precision(features.dtype), num_warps=4,
        )  # fmt: skip
    return out


def _keys(radius: int) -> int:
    return max(16, triton.next_power_of_2(TX + 2 * radius))  # a matrix product takes 16 columns at the least


def _block(channels: int) -> int:
    return 16 if channels <= 16 else 32
