"""Local GOCor in Gram space as Triton kernels: all iterations in one launch, and their backward pass in two.

At a location, let F hold the features around it (D×(2R+1)², zero outside of the image) and G = FᵀF. Every gradient of
the reference objective is a combination of these features, so the filter stays w = F·b. It starts from b⁰ = γδ, with
w⁰ = γf and γ = β/(‖f‖² + ε). With c = G·b the scores, and q and r slope and residual of the reference objective, one
iteration of `reference.steepest_descent` is

    u = q·r + λ²b,   t = G·u,   α = uᵀt / (‖q·t‖² + λ²uᵀt),   b ← b − sα·u,   c ← c − sα·t.

The channels are gone from the loop. α is set to zero where ‖g‖² = uᵀt is rounding error of g = F·u: in a flat region G
is singular, and u does not vanish when g does.

One program takes one location. It holds G on chip (or the features F themselves, if they are fewer numbers). From
R = 6 on, where neither fits, it reads the features again in each iteration. G's entries are values of the
autocorrelation A of radius 2R, G[d, d′] = A[p+d, d′−d], which neighbouring locations share.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..correlation.triton import adjoint, autocorrelate, correlate, dense, processors, strides
from . import rounding
from .operators import LocalOptions, LocalParameters

PROGRAMS = 3  # programs of the backward kernel per multiprocessor; each takes many locations
MANY_PROGRAMS = 8  # the same for the kernel that reads features again and holds less on chip
RESIDENT = 128  # largest (padded) number of displacements whose products with each other fit on chip
FEW_CHANNELS = 64  # up to this many channels, features are held in place of their products
ROWS = 16  # channels that are read at a time where neither features nor products are held
GATHERED = 256  # pixels that a program of the gathering kernel takes
BY_PRODUCTS = tl.constexpr(rounding.gradient_floor(torch.float32))
BY_FEATURES = tl.constexpr(rounding.gradient_floor(torch.float32, by_products=False))


@triton.jit
def _rows_of(gram, batch, y, x, H, W, d1, d2, R: tl.constexpr):
    """Scalar products of the features at displacements d1 with those at d2, zero outside of the window or image."""
    SIDE: tl.constexpr = 2 * R + 1
    WIDE: tl.constexpr = 4 * R + 1
    dy1, dx1, dy2, dx2 = d1 // SIDE - R, d1 % SIDE - R, d2 // SIDE - R, d2 % SIDE - R
    inside = (d1 < SIDE * SIDE) & (y + dy1 >= 0) & (y + dy1 < H) & (x + dx1 >= 0) & (x + dx1 < W)
    pixel = (batch * H + y + dy1) * W + x + dx1
    offset = (dy2[None, :] - dy1[:, None] + 2 * R) * WIDE + dx2[None, :] - dx1[:, None] + 2 * R
    keep = inside[:, None] & (d2 < SIDE * SIDE)[None, :]
    # Runs of 2R+1 are contiguous along d2. The hint makes the threads of a warp lie that way, so that loads are
    # coalesced, and sums over d1 stay within a thread.
    at = tl.max_contiguous(pixel[:, None] * (WIDE * WIDE) + offset, (1, 2))
    return tl.load(gram + at, keep, 0.0)


@triton.jit
def _features_of(
    features, batch, y, x, H, W, fb, fc, fp, first, d, C: tl.constexpr, R: tl.constexpr, ROWS: tl.constexpr
):
    """Features at displacements d, channels from `first` by displacements, zero outside of the window or image."""
    SIDE: tl.constexpr = 2 * R + 1
    c = first + tl.arange(0, ROWS)
    ky, kx = y + d // SIDE - R, x + d % SIDE - R
    inside = (d < SIDE * SIDE) & (ky >= 0) & (ky < H) & (kx >= 0) & (kx < W)
    at = tl.max_contiguous(batch * fb + c[:, None] * fc + ((ky * W + kx) * fp)[None, :], (1, 2))
    return tl.load(features + at, (c < C)[:, None] & inside[None, :], 0.0).to(tl.float32)


@triton.jit
def _product(
    resident, vector, source, batch, y, x, H, W, fb, fc, fp, d,
    R: tl.constexpr, C: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Both G·vector and vectorᵀ·G·vector. G is symmetric: sums run down its columns, within a thread."""
    if C == 0:
        product = tl.sum(resident * vector[:, None], 0)
        energy = tl.maximum(tl.sum(vector * product, 0), 0.0)
    elif C <= ROWS:  # by the features themselves, G = FᵀF
        filter = tl.sum(resident * vector[None, :], 1)
        product, energy = tl.sum(resident * filter[:, None], 0), tl.sum(filter * filter, 0)
    else:
        product, energy = tl.zeros((KEYS,), tl.float32), tl.sum(tl.zeros((KEYS,), tl.float32), 0)
        for first in range(0, C, ROWS):
            part = _features_of(source, batch, y, x, H, W, fb, fc, fp, first, d, C, R, ROWS)
            filter = tl.sum(part * vector[None, :], 1)
            product += tl.sum(part * filter[:, None], 0)
            energy += tl.sum(filter * filter, 0)
    return product, energy


@triton.jit
def _noise_floor(
    resident, source, batch, y, x, H, W, fb, fc, fp, d,
    R: tl.constexpr, C: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The diagonal of G, scaled: ‖g‖² below Σ u²·(this) is rounding error."""
    SIDE: tl.constexpr = 2 * R + 1
    WIDE: tl.constexpr = 4 * R + 1
    if C == 0:
        ky, kx = y + d // SIDE - R, x + d % SIDE - R
        inside = (d < SIDE * SIDE) & (ky >= 0) & (ky < H) & (kx >= 0) & (kx < W)
        at = ((batch * H + ky) * W + kx) * (WIDE * WIDE) + WIDE * WIDE // 2
        result = tl.load(source + at, inside, 0.0) * BY_PRODUCTS
    elif C <= ROWS:
        result = tl.sum(resident * resident, 0) * BY_FEATURES
    else:
        result = tl.zeros((KEYS,), tl.float32)
        for first in range(0, C, ROWS):
            part = _features_of(source, batch, y, x, H, W, fb, fc, fp, first, d, C, R, ROWS)
            result += tl.sum(part * part, 0) * BY_FEATURES
    return result


@triton.jit
def _load(
    source, location, batch, y, x, H, W, fb, fc, fp, d,
    R: tl.constexpr, C: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """G or F, if it is held on chip; products of the location's own feature with its neighbours; and with itself."""
    K: tl.constexpr = (2 * R + 1) * (2 * R + 1)
    WIDE: tl.constexpr = 4 * R + 1
    if C > 0:
        resident = d[None, :] * 0.0
        if C <= ROWS:
            resident = _features_of(source, batch, y, x, H, W, fb, fc, fp, 0, d, C, R, ROWS)
        only = tl.where(d == K // 2, 1.0, 0.0)
        row, energy = _product(resident, only, source, batch, y, x, H, W, fb, fc, fp, d, R, C, KEYS, ROWS)
    else:
        resident = _rows_of(source, batch, y, x, H, W, d, d, R)
        own = source + location * (WIDE * WIDE)
        row = tl.load(own + (d // (2 * R + 1) + R) * WIDE + d % (2 * R + 1) + R, d < K, 0.0)
        energy = tl.load(own + 2 * R * WIDE + 2 * R)
    return resident, row, energy


@triton.jit
def _activation(scores, absolute_gain, linear_gain, weighted_target, ETA: tl.constexpr):
    """|c| (or its smooth form), its derivative, and slope and residual of the reference objective."""
    if ETA == 0:
        magnitude = tl.abs(scores)
        direction = tl.where(scores > 0, 1.0, tl.where(scores < 0, -1.0, 0.0))
    else:
        root = tl.sqrt(scores * scores + ETA * ETA)
        magnitude, direction = root - ETA, scores / root
    slope = absolute_gain * direction + linear_gain
    return magnitude, direction, slope, absolute_gain * magnitude + linear_gain * scores - weighted_target


@triton.jit
def _descend_kernel(
    source, beta, absolute_gain, linear_gain, weighted_target, regularization, step_factor, out, H, W, fb, fc, fp,
    by_sample, floor, stabilizer,
    ITERS: tl.constexpr, ETA: tl.constexpr, R: tl.constexpr, C: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    location = tl.program_id(0).to(tl.int64)
    batch, pixel = location // (H * W), location % (H * W)
    y, x = pixel // W, pixel % W
    K: tl.constexpr = (2 * R + 1) * (2 * R + 1)
    d = tl.arange(0, KEYS)
    known = d < K
    resident, row, energy = _load(source, location, batch, y, x, H, W, fb, fc, fp, d, R, C, KEYS, ROWS)
    absolute, linear = tl.load(absolute_gain + d, known, 0.0), tl.load(linear_gain + d, known, 0.0)
    target = tl.load(weighted_target + d, known, 0.0)
    decay, factor = tl.load(regularization + batch * by_sample), tl.load(step_factor)
    start = tl.load(beta) / (energy + stabilizer)
    scores, coefficients = start * row, tl.where(d == K // 2, start, 0.0)
    noise = _noise_floor(resident, source, batch, y, x, H, W, fb, fc, fp, d, R, C, KEYS, ROWS)
    for _ in range(ITERS):
        _, _, slope, residual = _activation(scores, absolute, linear, target, ETA)
        u = slope * residual + decay * coefficients
        change, numerator = _product(resident, u, source, batch, y, x, H, W, fb, fc, fp, d, R, C, KEYS, ROWS)
        along = slope * change
        step = factor * numerator / tl.maximum(tl.sum(along * along, 0) + decay * numerator, floor)
        step = tl.where(numerator > tl.sum(u * u * noise, 0), step, 0.0)
        coefficients -= step * u
        scores -= step * change
    tl.store(out + (batch * K + d) * H * W + pixel, coefficients, known)


@triton.jit
def _descend_backward_kernel(
    source, beta, absolute_gain, linear_gain, weighted_target, regularization, step_factor, grad, scratch, left, right,
    direct, of_maps, of_scalars, of_decay, locations, H, W, fb, fc, fp, by_sample, floor, stabilizer,
    OF_GRAM: tl.constexpr,
    ITERS: tl.constexpr, ETA: tl.constexpr, R: tl.constexpr, C: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    K: tl.constexpr = (2 * R + 1) * (2 * R + 1)
    d = tl.arange(0, KEYS)
    known = d < K
    absolute, linear = tl.load(absolute_gain + d, known, 0.0), tl.load(linear_gain + d, known, 0.0)
    target = tl.load(weighted_target + d, known, 0.0)
    factor, gain = tl.load(step_factor), tl.load(beta)
    bar_absolute, bar_linear = tl.zeros((KEYS,), tl.float32), tl.zeros((KEYS,), tl.float32)
    bar_target = tl.zeros((KEYS,), tl.float32)
    bar_factor, bar_gain = 0.0, 0.0
    own = scratch + program.to(tl.int64) * ITERS * 5 * KEYS + d
    for index in range(program, locations, programs):
        location = tl.cast(index, tl.int64)
        batch, pixel = location // (H * W), location % (H * W)
        y, x = pixel // W, pixel % W
        at = (batch * K + d) * H * W + pixel
        decay, bar_decay = tl.load(regularization + batch * by_sample), 0.0
        resident, row, energy = _load(source, location, batch, y, x, H, W, fb, fc, fp, d, R, C, KEYS, ROWS)
        energy += stabilizer
        start = gain / energy
        scores, coefficients = start * row, tl.where(d == K // 2, start, 0.0)
        noise = _noise_floor(resident, source, batch, y, x, H, W, fb, fc, fp, d, R, C, KEYS, ROWS)
        for i in range(ITERS):  # the forward pass again, storing what the backward pass needs
            _, _, slope, residual = _activation(scores, absolute, linear, target, ETA)
            u = slope * residual + decay * coefficients
            change, numerator = _product(resident, u, source, batch, y, x, H, W, fb, fc, fp, d, R, C, KEYS, ROWS)
            along = slope * change
            step = factor * numerator / tl.maximum(tl.sum(along * along, 0) + decay * numerator, floor)
            step = tl.where(numerator > tl.sum(u * u * noise, 0), step, 0.0)
            tl.store(own + (5 * i) * KEYS, scores)
            tl.store(own + (5 * i + 1) * KEYS, coefficients)
            tl.store(own + (5 * i + 2) * KEYS, u)
            tl.store(own + (5 * i + 3) * KEYS, change)
            tl.store(own + (5 * i + 4) * KEYS, tl.zeros((KEYS,), tl.float32) + numerator)
            if OF_GRAM:
                tl.store(right + i * locations * K + at, u, known)
            coefficients -= step * u
            scores -= step * change
        tl.debug_barrier()
        bar_b, bar_c = tl.load(grad + at, known, 0.0), tl.zeros((KEYS,), tl.float32)
        continues = 1.0  # zero if a later step was rounding error: the optimum does not depend on s then
        for back in range(ITERS):
            i = ITERS - 1 - back
            scores, coefficients = tl.load(own + (5 * i) * KEYS), tl.load(own + (5 * i + 1) * KEYS)
            u, change = tl.load(own + (5 * i + 2) * KEYS), tl.load(own + (5 * i + 3) * KEYS)
            numerator = tl.load(scratch + (program.to(tl.int64) * ITERS * 5 + 5 * i + 4) * KEYS)
            magnitude, direction, slope, residual = _activation(scores, absolute, linear, target, ETA)
            along = slope * change
            curvature = tl.sum(along * along, 0) + decay * numerator
            resolved = numerator > tl.sum(u * u * noise, 0)
            alpha = tl.where(resolved, numerator / tl.maximum(curvature, floor), 0.0)
            step = factor * alpha
            bar_step = -(tl.sum(bar_b * u, 0) + tl.sum(bar_c * change, 0))
            bar_factor += continues * bar_step * alpha
            continues = tl.where(resolved, 1.0, 0.0)
            bar_alpha = tl.where(resolved, bar_step * factor / tl.maximum(curvature, floor), 0.0)
            bar_curvature = tl.where(curvature >= floor, -bar_alpha * alpha, 0.0)
            bar_numerator = bar_alpha + decay * bar_curvature
            bar_decay += bar_curvature * numerator
            bar_slope = 2 * bar_curvature * along * change
            bar_change = 2 * bar_curvature * slope * along - step * bar_c + bar_numerator * u
            if OF_GRAM:
                tl.store(left + i * locations * K + at, bar_change, known)
            bar_u, _ = _product(resident, bar_change, source, batch, y, x, H, W, fb, fc, fp, d, R, C, KEYS, ROWS)
            bar_u += bar_numerator * change - step * bar_b
            bar_decay += tl.sum(bar_u * coefficients, 0)
            bar_b += decay * bar_u
            bar_slope += bar_u * residual
            bar_residual = bar_u * slope
            bar_c += bar_residual * slope
            if ETA != 0:
                root = magnitude + ETA
                bar_c += bar_slope * absolute * ETA * ETA / (root * root * root)
            bar_absolute += bar_residual * magnitude + bar_slope * direction
            bar_linear += bar_residual * scores + bar_slope
            bar_target -= bar_residual
        bar_start = tl.sum(tl.where(d == K // 2, bar_b, 0.0), 0) + tl.sum(row * bar_c, 0)
        bar_gain += bar_start / energy
        tl.store(of_decay + location, bar_decay)
        if OF_GRAM:
            tl.store(direct + at, start * bar_c - tl.where(d == K // 2, bar_start * start / energy, 0.0), known)
        tl.debug_barrier()  # the next location overwrites the scratch memory
    tl.store(of_maps + program * 3 * KEYS + d, bar_absolute)
    tl.store(of_maps + (program * 3 + 1) * KEYS + d, bar_linear)
    tl.store(of_maps + (program * 3 + 2) * KEYS + d, bar_target)
    tl.store(of_scalars + program * 2, bar_factor)
    tl.store(of_scalars + program * 2 + 1, bar_gain)


@triton.jit
def _gather_kernel(
    left, right, direct, out, B, H, W,
    ITERS: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    batch, e = tl.program_id(2).to(tl.int64), tl.program_id(1)
    K: tl.constexpr = (2 * R + 1) * (2 * R + 1)
    WIDE: tl.constexpr = 4 * R + 1
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y, x = pixel // W, pixel % W
    ey, ex = e // WIDE - 2 * R, e % WIDE - 2 * R
    near = (ey >= -R) & (ey <= R) & (ex >= -R) & (ex <= R)
    own = tl.where(near, (ey + R) * (2 * R + 1) + ex + R, 0)
    acc = tl.load(direct + (batch * K + own) * H * W + pixel, near & (pixel < H * W), 0.0)
    for dy in range(tl.maximum(-R, -R - ey), tl.minimum(R, R - ey) + 1):
        for dx in range(tl.maximum(-R, -R - ex), tl.minimum(R, R - ex) + 1):
            inside = (pixel < H * W) & (y - dy >= 0) & (y - dy < H) & (x - dx >= 0) & (x - dx < W)
            first = (dy + R) * (2 * R + 1) + dx + R
            second = first + ey * (2 * R + 1) + ex
            at = pixel - dy * W - dx
            for i in tl.static_range(ITERS):
                plane = (i * B + batch) * K
                p = tl.load(left + (plane + first) * H * W + at, inside, 0.0)
                q = tl.load(right + (plane + second) * H * W + at, inside, 0.0)
                acc += p * q
    tl.store(out + (batch * WIDE * WIDE + e) * H * W + pixel, acc, pixel < H * W)


def filters(reference: Tensor, parameters: LocalParameters, options: LocalOptions) -> tuple[Tensor, Tensor]:
    """Optimised filters w `(B, D, H, W)` and their coefficients b `(B, (2R+1)², H, W)`, float32: w = F·b."""
    reference = dense(reference)
    batch, _, height, width = reference.shape
    source, sizes = _source(reference, options.radius)
    out = reference.new_empty(batch, (2 * options.radius + 1) ** 2, height, width, dtype=torch.float32)
    if out.numel():
        _descend_kernel[(batch * height * width,)](
            source, *parameters, out, height, width, *strides(reference), _by_sample(parameters), options.floor,
            options.stabilizer, ITERS=options.iters, ETA=options.eta, R=options.radius, **sizes,
        )  # fmt: skip
    return adjoint(out, reference, options.radius, 1.0, "reference", dtype=torch.float32, exact=True), out


def filters_gradients(
    grad: Tensor,
    coefficients: Tensor,
    reference: Tensor,
    parameters: LocalParameters,
    options: LocalOptions,
    *,
    of_reference: bool,
) -> list[Tensor]:
    """Gradients of the reference (empty unless asked for) and of every parameter, from that of the filters."""
    radius = options.radius
    bar_coefficients = correlate(grad, reference, radius, 1.0, dtype=torch.float32, exact=True)
    bar_gram, *bars = descend_gradients(bar_coefficients, reference, parameters, options, of_gram=of_reference)
    if not of_reference:
        return [reference.new_empty(0), *bars]
    # w = F·b depends on the features directly, and b through A, whose entries are products of features on both sides.
    bar_reference = adjoint(bar_gram, reference, 2 * radius, 1.0, "both", dtype=torch.float32, exact=True)
    bar_reference += adjoint(coefficients, grad, radius, 1.0, "query", dtype=torch.float32, exact=True)
    return [bar_reference.to(reference.dtype), *bars]


def descend_gradients(
    grad: Tensor, features: Tensor, parameters: LocalParameters, options: LocalOptions, *, of_gram: bool
) -> list[Tensor]:
    """Gradients of the autocorrelation A `(B, (4R+1)², H, W)` (empty unless asked for) and of every parameter.

    Args:
        grad: gradient of the coefficients b, `(B, (2R+1)², H, W)` float32.
        features: `(B, D, H, W)`.
        parameters: see `LocalParameters`.
        options: see `LocalOptions`.
        of_gram: whether the gradient of A is needed.
    """
    features = dense(features)
    batch, _, height, width = features.shape
    radius, iters, locations = options.radius, options.iters, batch * height * width
    source, sizes = _source(features, radius)
    if sizes["C"]:
        sizes["num_warps"] = max(1, sizes["ROWS"] * sizes["KEYS"] // 4096)  # it holds more on chip than forward
    count, wide, keys = (2 * radius + 1) ** 2, (4 * radius + 1) ** 2, sizes["KEYS"]
    share = PROGRAMS if keys <= RESIDENT else MANY_PROGRAMS
    programs = max(1, min(locations, share * processors(features.device)))
    like = grad.new_empty(0, dtype=torch.float32)
    stored = batch if of_gram else 0
    left, right = (like.new_empty(iters, stored, count, height, width) for _ in range(2))
    direct = like.new_empty(stored, count, height, width)
    of_maps, of_scalars = like.new_empty(programs, 3, keys), like.new_empty(programs, 2)
    of_decay, scratch = like.new_empty(batch, height * width), like.new_empty(programs, max(1, iters), 5, keys)
    _descend_backward_kernel[(programs,)](
        source, *parameters, grad.contiguous(), scratch, left, right, direct, of_maps, of_scalars, of_decay, locations,
        height, width, *strides(features), _by_sample(parameters), options.floor, options.stabilizer, OF_GRAM=of_gram,
        ITERS=iters, ETA=options.eta, R=radius, **sizes,
    )  # fmt: skip
    bar_gram = like.new_empty(stored, wide, height, width)
    if of_gram:
        _gather_kernel[(triton.cdiv(height * width, GATHERED), wide, batch)](
            left, right, direct, bar_gram, batch, height, width, ITERS=iters, R=radius, BLOCK=GATHERED, num_warps=4
        )
    bar_factor, bar_beta = of_scalars.sum(0).unbind()
    bar_decay = of_decay.sum(1) if _by_sample(parameters) else of_decay.sum()
    bars = [bar_beta, *of_maps.sum(0)[:, :count].unbind(), bar_decay, bar_factor]
    return [bar_gram, *(bar.reshape(p.shape).clone() for bar, p in zip(bars, parameters, strict=True))]


def _by_sample(parameters: LocalParameters) -> int:
    """Distance in memory between the regularisers of two samples; zero if they share one."""
    return int(parameters.regularization.numel() > 1)


def _source(features: Tensor, radius: int) -> tuple[Tensor, dict[str, int]]:
    """What the kernels read (features or their autocorrelation) and its sizes, padded to powers of two.

    Features are held on chip where there are fewer channels than displacements. G is singular then, uᵀGu would lose
    digits, and the features are fewer numbers. Where there are too many products to hold, features are read for each.
    """
    channels, keys = features.shape[1], max(16, triton.next_power_of_2((2 * radius + 1) ** 2))
    if channels <= FEW_CHANNELS or keys > RESIDENT:
        rows = max(16, triton.next_power_of_2(channels)) if keys <= RESIDENT else ROWS
        return features, {"C": channels, "KEYS": keys, "ROWS": rows, "num_warps": max(1, rows * keys // 8192)}
    return autocorrelate(features, 2 * radius), {"C": 0, "KEYS": keys, "ROWS": keys, "num_warps": max(1, keys // 32)}
