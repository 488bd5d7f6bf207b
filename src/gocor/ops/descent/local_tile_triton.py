"""Local GOCor without gradients as one Triton kernel on matrix units: first filters, all iterations, volume.

A program takes a tile of ROWS×8 locations and holds the features that they reach, a window of 16 columns, on chip. As
in `modules.tiled_descent` all scores of the tile with its window are kept: beyond the radius the objective's
coefficients are zero. With w a location's filter, F the window and c = wFᵀ its scores, q and r slope and residual of
the reference term, one iteration is

    g = (q·r)F + λ²w,   t = gFᵀ,   α = ‖g‖² / (‖q·t‖² + λ²‖g‖²),   w ← w − sα·g,   c ← c − sα·t,

which is that of `gram_reference`. Operands of products are sums of bfloat16 numbers: those have float32's range.
Features of bfloat16 are read as they are; others are taken apart by a kernel before.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..correlation.triton import regular, strides
from .gram_reference import Options

TABLE = tl.constexpr(192)  # entries of a coefficient's table
ROWS = tl.constexpr(2)  # of a tile
UPPER = tl.constexpr(8)  # rows in the upper part of a window
LOWER = tl.constexpr(2)  # and in the lower
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
PIXELS = 32  # that a program takes apart
MANY_LOCATIONS = 4096


@triton.jit
def _high(x):
    """The upper 16 bits of x, a bfloat16 number."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _split(x):
    """Three bfloat16 numbers whose sum is x."""
    a = _high(x)
    b = _high(x - a)
    return a.to(tl.bfloat16), b.to(tl.bfloat16), (x - a - b).to(tl.bfloat16)


@triton.jit
def _parts_kernel(
    reference, query, out, B, COUNT, rb, rc, rp, qb, qc, qp,
    C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(1).to(tl.int64)  # of the reference, then of the query
    pixel, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_C)
    keep = (pixel < COUNT)[:, None] & (c < C)[None, :]
    if sample < B:
        x = tl.load(reference + sample * rb + pixel[:, None] * rp + c[None, :] * rc, keep, 0.0)
    else:
        x = tl.load(query + (sample - B) * qb + pixel[:, None] * qp + c[None, :] * qc, keep, 0.0)
    x1, x2, x3 = _split(x.to(tl.float32))
    part = 2 * tl.cast(B, tl.int64) * COUNT * BLOCK_C
    to = out + sample * COUNT * BLOCK_C + pixel[:, None] * BLOCK_C + c[None, :]
    within = (pixel < COUNT)[:, None]
    tl.store(to, x1, within)
    tl.store(to + part, x2, within)
    if PARTS == 3:
        tl.store(to + 2 * part, x3, within)


@triton.jit
def _product(x, f1, f2, f3, PARTS: tl.constexpr):
    """x·f, to 24 bits with three parts, else to 16.

    From zero, small parts first: matrix units round towards zero each time they add.
    """
    x1, x2, x3 = _split(x)
    acc = tl.zeros((x.shape[0], f1.shape[1]), tl.float32)
    if PARTS == 3:
        acc = tl.dot(x1, f3, acc)
        acc = tl.dot(x3, f1, acc)
        acc = tl.dot(x2, f2, acc)
    if PARTS >= 2:
        acc = tl.dot(x1, f2, acc)
    acc = tl.dot(x2, f1, acc)
    return tl.dot(x1, f1, acc)


@triton.jit
def _scores(x, f1, f2, f3, PARTS: tl.constexpr):
    """Scores of x with all pixels of f."""
    return _product(x, tl.trans(f1), tl.trans(f2), tl.trans(f3), PARTS)


@triton.jit
def _load(at, keep, part, PARTS: tl.constexpr):
    f1 = tl.load(at, keep, 0.0)
    f2, f3 = f1, f1
    if PARTS >= 2:
        f2 = tl.load(at + part, keep, 0.0)
    if PARTS == 3:
        f3 = tl.load(at + 2 * part, keep, 0.0)
    return f1, f2, f3


@triton.jit
def _window(features, y, x, H, W, fc, fp, part, C: tl.constexpr, BLOCK_C: tl.constexpr, PARTS: tl.constexpr):
    """Parts of the features at these pixels, `(pixels, channels)`, zero outside of the image."""
    c = tl.arange(0, BLOCK_C)
    keep = ((y >= 0) & (y < H) & (x >= 0) & (x < W))[:, None] & (c < C)[None, :]
    return _load(features + (y * W + x)[:, None] * fp + c[None, :] * fc, keep, part, PARTS)


@triton.jit
def _read(table, entry, pixel):
    """A coefficient by location and pixel, each read by the thread that needs it, which Triton's loads would not do."""
    at = table + entry[:, None] + pixel[None, :]
    if INTERPRETED:
        return tl.load(at)
    return tl.inline_asm_elementwise(
        "ld.global.nc.f32 $0, [$1];", "=f,l", [at.to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _slope_and_pull(scores, tables, entry, pixel, ETA: tl.constexpr):
    """Derivative q of the residual r by the score, and q·r."""
    bend, slant = _read(tables, entry, pixel), _read(tables + TABLE, entry, pixel)
    goal = _read(tables + 2 * TABLE, entry, pixel)
    if ETA == 0:
        slope = tl.where(scores == 0, slant, slant + tl.where(scores < 0, -bend, bend))
        return slope, slope * (slope * scores - goal)
    root = tl.sqrt(scores * scores + ETA * ETA)
    slope = bend * (scores / root) + slant
    return slope, slope * (bend * (root - ETA) + slant * scores - goal)


@triton.jit
def _store(out, volume, pixel, dy, dx, y, x, H, W, R: tl.constexpr):
    dy, dx = pixel[None, :] // 16 + dy[:, None], pixel[None, :] % 16 + dx[:, None]
    near = (dy >= 0) & (dy <= 2 * R) & (dx >= 0) & (dx <= 2 * R)
    to = out + (dy * (2 * R + 1) + dx) * H * W + (y * W + x)[:, None]
    tl.store(to, volume.to(out.dtype.element_ty), near & ((y < H) & (x < W))[:, None])


@triton.jit
def _volume_kernel(
    reference, query, beta, tables, regularization, step_factor, out, H, W, tiles_x, rb, rc, rp, qb, qc, qp, part,
    floor, stabilizer, zero, ITERS: tl.constexpr, ETA: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    BLOCK_C: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    tile, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    top, left = tile // tiles_x * ROWS, tile % tiles_x * 8
    part = tl.cast(part, tl.int64)
    reference += batch * rb
    query += batch * qb
    upper, lower = tl.arange(0, UPPER * 16), tl.arange(0, LOWER * 16) + UPPER * 16
    uy, ux, ly, lx = top - R + upper // 16, left - R + upper % 16, top - R + lower // 16, left - R + lower % 16
    # Locations are numbered from the last one: a displacement's entry is then a sum, addresses lie known steps apart.
    location, c = tl.arange(0, ROWS * 8), tl.arange(0, BLOCK_C)
    entry, dy, dx = location + location // 8 * 8, location // 8 - (ROWS - 1), location % 8 - 7
    y, x = top - dy, left - dx
    decay, factor = tl.load(regularization), tl.load(step_factor)

    f1, f2, f3 = _window(reference, uy, ux, H, W, rc, rp, part, C, BLOCK_C, PARTS)
    h1, h2, h3 = _window(reference, ly, lx, H, W, rc, rp, part, C, BLOCK_C, PARTS)
    own = reference + c[None, :] * rc + (y * W + x)[:, None] * rp
    w1, w2, w3 = _load(own, (c < C)[None, :] & ((y < H) & (x < W))[:, None], part, PARTS)
    w = w1.to(tl.float32)  # (locations, channels)
    if PARTS >= 2:
        w += w2.to(tl.float32)
    if PARTS == 3:
        w += w3.to(tl.float32)
    w *= (tl.load(beta) / (tl.sum(w * w, 1) + stabilizer))[:, None]
    scores_u, scores_l = _scores(w, f1, f2, f3, PARTS), _scores(w, h1, h2, h3, PARTS)
    for i in range(ITERS):
        here = tables + i * zero  # which the compiler does not know: coefficients are read anew, not kept in registers
        slope_u, pull_u = _slope_and_pull(scores_u, here, entry, upper, ETA)
        slope_l, pull_l = _slope_and_pull(scores_l, here, entry, lower, ETA)
        g = _product(pull_u, f1, f2, f3, PARTS) + (_product(pull_l, h1, h2, h3, PARTS) + decay * w)
        change_u, change_l = _scores(g, f1, f2, f3, PARTS), _scores(g, h1, h2, h3, PARTS)
        along_u, along_l = slope_u * change_u, slope_l * change_l
        numerator = tl.sum(g * g, 1)
        denominator = tl.sum(along_u * along_u, 1) + tl.sum(along_l * along_l, 1) + decay * numerator
        step = (factor * numerator / tl.maximum(denominator, floor))[:, None]
        w -= step * g
        scores_u -= step * change_u
        scores_l -= step * change_l

    f1, f2, f3 = _window(query, uy, ux, H, W, qc, qp, part, C, BLOCK_C, PARTS)
    h1, h2, h3 = _window(query, ly, lx, H, W, qc, qp, part, C, BLOCK_C, PARTS)
    out += batch * (2 * R + 1) * (2 * R + 1) * H * W
    _store(out, _scores(w, f1, f2, f3, PARTS), upper, dy, dx, y, x, H, W, R)
    _store(out, _scores(w, h1, h2, h3, PARTS), lower, dy, dx, y, x, H, W, R)


def parts_of(features: Tensor) -> int:
    """How many bfloat16 numbers features are taken apart into: 2 for a precision of 16 bits, 3 for that of float32."""
    if features.dtype == torch.bfloat16:
        return 1
    return 2 if features.dtype == torch.float16 or torch.backends.cuda.matmul.allow_tf32 else 3


def pays(features: Tensor) -> bool:
    """Whether this kernel is faster than those of Gram space, by measurement."""
    batch, channels, height, width = features.shape
    if parts_of(features) == 1:
        return channels <= 128 or batch * height * width >= MANY_LOCATIONS
    return channels <= (64 if parts_of(features) == 3 else 128)


def volume(reference: Tensor, query: Tensor, parameters: tuple[Tensor, ...], options: Options) -> Tensor:
    """The volume of local GOCor.

    Args:
        reference: `(B, D, H, W)`, float32 or 16 bits.
        query: of the same shape and dtype.
        parameters: β, tables of the coefficients (see `modules.tiled_inference.spread`), λ² and s.
        options: see `gram_reference.descend`; a radius of 4 at the most.

    Returns:
        `(B, (2R+1)², H, W)` in the features' dtype.
    """
    reference, query = regular(reference), regular(query)
    batch, channels, height, width = reference.shape
    out = reference.new_empty(batch, (2 * options.radius + 1) ** 2, height, width)
    if not out.numel():
        return out
    parts, block, part = parts_of(reference), block_of(channels), 0
    layouts = *strides(reference), *strides(query)
    if parts > 1:
        apart = reference.new_empty(parts, 2 * batch, height * width, block, dtype=torch.bfloat16)
        _parts_kernel[(triton.cdiv(height * width, PIXELS), 2 * batch)](
            reference, query, apart, batch, height * width, *layouts,
            C=channels, BLOCK_C=block, BLOCK=PIXELS, PARTS=parts, num_warps=4,
        )  # fmt: skip
        reference, query = apart[0, :batch], apart[0, batch:]
        channels, part, layouts = block, apart.stride(0), (apart.stride(1), 1, block) * 2
    beta, tables, *scalars = parameters
    tiles_x = triton.cdiv(width, 8)
    _volume_kernel[(triton.cdiv(height, ROWS.value) * tiles_x, batch)](
        reference, query, beta, tables, *scalars, out, height, width, tiles_x, *layouts, part,
        options.floor, options.stabilizer, 0, ITERS=options.iters, ETA=options.eta, R=options.radius, C=channels,
        BLOCK_C=block, PARTS=parts, num_stages=1, num_warps=2 if parts == 1 and block <= 64 else 4,
        maxnreg=255,  # for two warps the assembler would stop at 32 registers and spill the rest
    )  # fmt: skip
    return out


def block_of(channels: int) -> int:
    """Channels padded to a number that matrix units take."""
    return max(16, triton.next_power_of_2(channels))
