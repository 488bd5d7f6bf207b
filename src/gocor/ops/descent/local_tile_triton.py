"""Local GOCor without gradients as one Triton kernel on tensor cores: initial filters, all iterations, volume.

One program takes a tile of ROWS×8 locations and holds the features in their reach, a window of 16 columns, on chip. As
in `tiles`, it keeps all scores of the tile with its window; beyond the radius the objective's coefficients are zero.
With w the filters, F the window and c = wFᵀ the scores, q and r slope and residual of the reference objective, one
iteration of `reference.steepest_descent` is

    g = (q·r)F + λ²w,   t = gFᵀ,   α = ‖g‖² / (‖q·t‖² + λ²‖g‖²),   w ← w − sα·g,   c ← c − sα·t.

Operands of products are sums of bfloat16 numbers, which have float32's range. Features in bfloat16 are used as they
are; a first kernel splits others into two (float16) or three (float32) bfloat16 parts.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..correlation.triton import dense, strides
from .operators import LocalOptions

TABLE = tl.constexpr(192)  # entries of a coefficient's table
ROWS = tl.constexpr(2)  # rows of a tile
UPPER = tl.constexpr(8)  # rows in the upper part of a window
LOWER = tl.constexpr(2)  # rows in its lower part
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
PIXELS = 32  # pixels that a program of the splitting kernel takes
PARTS = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}  # bfloat16 numbers that a feature is split into


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
    """x·f, to 24 bits with three parts, else to 16 bits.

    Small parts are added first, because tensor cores round towards zero in every addition.
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
    """A coefficient by location and pixel. Each thread reads what it needs, which `tl.load` does not guarantee."""
    at = table + entry[:, None] + pixel[None, :]
    if INTERPRETED:
        return tl.load(at)
    return tl.inline_asm_elementwise(
        "ld.global.nc.f32 $0, [$1];", "=f,l", [at.to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _slope_and_pull(scores, tables, entry, pixel, ETA: tl.constexpr):
    """Derivative q of the residual r by the score, and q·r."""
    absolute, linear = _read(tables, entry, pixel), _read(tables + TABLE, entry, pixel)
    target = _read(tables + 2 * TABLE, entry, pixel)
    if ETA == 0:
        slope = tl.where(scores == 0, linear, linear + tl.where(scores < 0, -absolute, absolute))
        return slope, slope * (slope * scores - target)
    root = tl.sqrt(scores * scores + ETA * ETA)
    slope = absolute * (scores / root) + linear
    return slope, slope * (absolute * (root - ETA) + linear * scores - target)


@triton.jit
def _store(out, volume, pixel, dy, dx, y, x, H, W, R: tl.constexpr):
    dy, dx = pixel[None, :] // 16 + dy[:, None], pixel[None, :] % 16 + dx[:, None]
    near = (dy >= 0) & (dy <= 2 * R) & (dx >= 0) & (dx <= 2 * R)
    to = out + (dy * (2 * R + 1) + dx) * H * W + (y * W + x)[:, None]
    tl.store(to, volume.to(out.dtype.element_ty), near & ((y < H) & (x < W))[:, None])


@triton.jit
def _volume_kernel(
    reference, query, beta, tables, regularization, step_factor, out, H, W, tiles_x, rb, rc, rp, qb, qc, qp, part,
    by_sample, floor, stabilizer, zero, ITERS: tl.constexpr, ETA: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    BLOCK_C: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    tile, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    top, left = tile // tiles_x * ROWS, tile % tiles_x * 8
    part = tl.cast(part, tl.int64)
    reference += batch * rb
    query += batch * qb
    upper, lower = tl.arange(0, UPPER * 16), tl.arange(0, LOWER * 16) + UPPER * 16
    uy, ux, ly, lx = top - R + upper // 16, left - R + upper % 16, top - R + lower // 16, left - R + lower % 16
    # Locations are numbered from the last one: a displacement's table entry is then a sum of two known indices.
    location, c = tl.arange(0, ROWS * 8), tl.arange(0, BLOCK_C)
    entry, dy, dx = location + location // 8 * 8, location // 8 - (ROWS - 1), location % 8 - 7
    y, x = top - dy, left - dx
    decay, factor = tl.load(regularization + batch * by_sample), tl.load(step_factor)

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
        # The compiler does not know that `zero` is 0, so it reads coefficients again: they would fill the registers.
        here = tables + i * zero
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


def volume(
    reference: Tensor,
    query: Tensor,
    table: Tensor,
    beta: Tensor,
    regularization: Tensor,
    step_factor: Tensor,
    options: LocalOptions,
) -> Tensor:
    """The volume of local GOCor, `(B, (2R+1)², H, W)` in the features' dtype.

    Args:
        reference: features `(B, D, H, W)`, float32 or 16 bits.
        query: features of the same shape and dtype.
        table: see `operators.coefficient_table`.
        beta: see `operators.LocalParameters`, as the next two.
        regularization: λ².
        step_factor: s.
        options: see `operators.LocalOptions`; the radius is at most 4.
    """
    reference, query = dense(reference), dense(query)
    batch, channels, height, width = reference.shape
    out = reference.new_empty(batch, (2 * options.radius + 1) ** 2, height, width)
    if not out.numel():
        return out
    parts, block, part = PARTS[reference.dtype], max(16, triton.next_power_of_2(channels)), 0
    layouts = *strides(reference), *strides(query)
    if parts > 1:
        split = reference.new_empty(parts, 2 * batch, height * width, block, dtype=torch.bfloat16)
        _parts_kernel[(triton.cdiv(height * width, PIXELS), 2 * batch)](
            reference, query, split, batch, height * width, *layouts,
            C=channels, BLOCK_C=block, BLOCK=PIXELS, PARTS=parts, num_warps=4,
        )  # fmt: skip
        reference, query = split[0, :batch], split[0, batch:]
        channels, part, layouts = block, split.stride(0), (split.stride(1), 1, block) * 2
    tiles_x = triton.cdiv(width, 8)
    _volume_kernel[(triton.cdiv(height, ROWS.value) * tiles_x, batch)](
        reference, query, beta, table, regularization, step_factor, out, height, width, tiles_x, *layouts, part,
        int(regularization.numel() > 1), options.floor, options.stabilizer, 0, ITERS=options.iters, ETA=options.eta,
        R=options.radius, C=channels, BLOCK_C=block, PARTS=parts, num_stages=1,
        num_warps=2 if parts == 1 and block <= 64 else 4,
        maxnreg=255,  # for two warps the assembler would stop at 32 registers and spill the rest
    )  # fmt: skip
    return out
