"""Global GOCor without gradients as a few Triton kernels around torch's matrix products.

It computes `gram.gram_descent`. Rows of S, U and T belong to the query first, then to the reference. The product
T′ = G·U leaves out λ²S, which is added where T is read; likewise λ²P is added to RᵀR ∗ T′, since P = RᵀR ∗ S. An
iteration is five launches, or three without query objective:

    T′ = G·U → R ∗ T′ → Rᵀ over the reference → Rᵀ over the query, and sums → step, S, P and the next U.

Every program writes a partial sum, and every program that needs the total adds up the partial sums. There are no
atomics, so results are the same in every run. The coefficients of the reference objective are read from a table by
squared distance.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..correlation.triton import dense, precision, strides
from . import rounding
from .operators import GlobalOptions, GlobalParameters
from .smoothing_triton import ADJOINT_BLOCK, BLOCK, LOOPS, QUERIES, _adjoint_over_reference_kernel, _smooth_kernel

COLUMNS, ROWS = 128, 8  # locations and rows of S that a program takes
PARTS = 1024  # largest number of partial sums per sample
PARTS_OF_LOCATION = 16  # largest number of partial sums per location
CHANNELS = 128  # channels that a program takes at a time for initial filters
COLLINEAR = tl.constexpr(rounding.determinant_floor(torch.float32))
PROGRAMS = 256  # programs of R's kernels that are wanted: each takes fewer query positions until there are as many


@triton.jit
def _gather_kernel(
    reference, query, features, mean, D, Nq, Nr, rb, rc, rp, qb, qc, qp, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Query and reference side by side in float32, and the mean of the reference."""
    batch, c = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    to = features + (batch * D + c)[:, None] * (Nq + Nr)
    for first in range(0, Nq, BLOCK):
        p = first + tl.arange(0, BLOCK)
        keep = (c < D)[:, None] & (p < Nq)[None, :]
        values = tl.load(query + batch * qb + c[:, None] * qc + p[None, :] * qp, keep, 0.0)
        tl.store(to + p[None, :], values.to(tl.float32), keep)
    total = tl.zeros((BLOCK_C,), tl.float32)
    for first in range(0, Nr, BLOCK):
        p = first + tl.arange(0, BLOCK)
        keep = (c < D)[:, None] & (p < Nr)[None, :]
        values = tl.load(reference + batch * rb + c[:, None] * rc + p[None, :] * rp, keep, 0.0).to(tl.float32)
        tl.store(to + Nq + p[None, :], values, keep)
        total += tl.sum(values, 1)
    tl.store(mean + batch * D + c, tl.div_rn(total, tl.zeros_like(total) + Nr), c < D)


@triton.jit
def _start_kernel(
    features, mean, beta, gamma, filters, energy, D, Nq, Nr, stabilizer,
    CONTEXT: tl.constexpr, FLEXIBLE: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Initial filters, and ‖w⁰‖² of each location."""
    batch, p = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ff, fm = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    mm, total = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, D, BLOCK_C):
        c = first + tl.arange(0, BLOCK_C)
        keep = (c < D)[:, None] & (p < Nr)[None, :]
        f = tl.load(features + (batch * D + c)[:, None] * (Nq + Nr) + Nq + p[None, :], keep, 0.0)
        ff += tl.sum(f * f, 0)
        if CONTEXT:  # all three are summed in one way, so that they are equal where f is the mean
            m = tl.load(mean + batch * D + c, c < D, 0.0)[:, None] + tl.zeros_like(f)
            fm += tl.sum(f * m, 0)
            mm += tl.sum(m * m, 0)
    for first in range(0, D, BLOCK_C):
        c = first + tl.arange(0, BLOCK_C)
        keep = (c < D)[:, None] & (p < Nr)[None, :]
        f = tl.load(features + (batch * D + c)[:, None] * (Nq + Nr) + Nq + p[None, :], keep, 0.0)
        b = tl.load(beta + c * FLEXIBLE, c < D, 0.0)[:, None]
        if CONTEXT:
            g = tl.load(gamma + c * FLEXIBLE, c < D, 0.0)[:, None]
            m = tl.load(mean + batch * D + c, c < D, 0.0)[:, None]
            own, of_mean = b * mm[None, :] - g * fm[None, :], b * fm[None, :] - g * ff[None, :]
            determinant = tl.maximum(ff * mm - fm * fm, tl.maximum(COLLINEAR * ff * mm, 1e-6))
            w = (own * (f - m) + (own - of_mean) * m) / determinant[None, :]
        else:
            w = b * (f / (ff + stabilizer)[None, :])
        tl.store(filters + (batch * D + c)[:, None] * Nr + p[None, :], w, keep)
        total += tl.sum(tl.where(keep, w * w, 0.0), 0)
    tl.store(energy + batch * Nr + p, total, p < Nr)


@triton.jit
def _coefficients(table, k, r, Wr, LAST: tl.constexpr):
    """Coefficients of the scores of reference pixels k at locations r."""
    dy, dx = (k // Wr)[:, None] - (r // Wr)[None, :], (k % Wr)[:, None] - (r % Wr)[None, :]
    at = table + tl.minimum(dy * dy + dx * dx, LAST)
    return tl.load(at), tl.load(at + (LAST + 1)), tl.load(at + 2 * (LAST + 1))


@triton.jit
def _slope_and_residual(scores, absolute, linear, target, ETA: tl.constexpr):
    if ETA == 0:
        slope = absolute * tl.where(scores > 0, 1.0, tl.where(scores < 0, -1.0, 0.0)) + linear
        residual = slope * scores - target
    else:
        root = tl.sqrt(scores * scores + ETA * ETA)
        slope = absolute * (scores / root) + linear
        residual = absolute * (root - ETA) + linear * scores - target
    return slope, residual


@triton.jit
def _query_row(
    scores, pull, change, between, first, smoothed, decay, batch, q, r, Nq, Nr, Hq, Wq,
    START: tl.constexpr, INTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rᵀ over the query for one row, the last part of RᵀR, and the row's share of the three sums."""
    i = tl.arange(0, INTER)
    acc = tl.zeros((BLOCK, INTER), tl.float32)
    for tap in tl.static_range(9):
        y, x = q // Wq + 1 - tap // 3, q % Wq + 1 - tap % 3
        inside = (r < Nr) & (y >= 0) & (y < Hq) & (x >= 0) & (x < Wq)
        at = ((batch * Nq + y * Wq + x) * Nr + r)[:, None] * INTER + i[None, :]
        acc += tl.load(between + at, inside[:, None], 0.0) * tl.load(first + tap * INTER + i)[None, :]
    z, at = tl.sum(acc, 1), q * Nr + r
    if START:
        tl.store(pull + at, z, r < Nr)
        u, s, t = tl.zeros_like(z), tl.zeros_like(z), tl.zeros_like(z)
    else:
        s, u = tl.load(scores + at, r < Nr, 0.0), tl.load(pull + at, r < Nr, 0.0)
        t = tl.load(change + at, r < Nr, 0.0) + decay * s
        z += decay * u
        tl.store(smoothed + batch * Nq * Nr + at, z, r < Nr)
    return u * s, u * t, t * z


@triton.jit
def _reference_rows(
    scores, pull, change, table, decay, k, r, Nr, Wr, START: tl.constexpr, ETA: tl.constexpr, LAST: tl.constexpr
):  # fmt: skip
    """A few rows' share of the three sums. Pointers are those of the reference's first row."""
    at, keep = k[:, None] * Nr + r[None, :], (k < Nr)[:, None] & (r < Nr)[None, :]
    s = tl.load(scores + at, keep, 0.0)
    absolute, linear, target = _coefficients(table, k, r, Wr, LAST)
    slope, residual = _slope_and_residual(s, absolute, linear, target, ETA)
    if START:
        tl.store(pull + at, slope * residual, keep)
        u, t = tl.zeros_like(s), tl.zeros_like(s)
    else:
        u, t = tl.load(pull + at, keep, 0.0), tl.load(change + at, keep, 0.0) + decay * s
    bent = slope * t
    return tl.sum(u * s, 0), tl.sum(u * t, 0), tl.sum(bent * bent, 0)


@triton.jit
def _sums_kernel(
    scores, pull, change, between, first, smoothed, table, regularization, by_sample, parts, Nq, Nr, Hq, Wq, Wr, units,
    START: tl.constexpr, QUERY: tl.constexpr, INTER: tl.constexpr, ETA: tl.constexpr, LAST: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The end of RᵀR ∗ T′, and partial sums of ⟨U, S⟩, ⟨U, T⟩ and ‖q·T_r‖² + ⟨T_q, RᵀR ∗ T_q⟩; at the start, U itself.

    A unit is one row of the query or a few of the reference. Sums are by sample; without query term, by location.
    """
    group, groups, batch = tl.program_id(1), tl.num_programs(1), tl.program_id(2).to(tl.int64)
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scores += batch * (Nq + Nr) * Nr
    change += batch * (Nq + Nr) * Nr
    above = Nq if QUERY else 0  # rows of U above the reference's
    pull += batch * (above + Nr) * Nr
    decay = tl.load(regularization + batch * by_sample)
    along, squared = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    curvature = tl.zeros((BLOCK,), tl.float32)
    for unit in range(group, units, groups):
        if unit < above:
            us, ut, tt = _query_row(
                scores, pull, change, between, first, smoothed, decay, batch, unit, r, Nq, Nr, Hq, Wq,
                START, INTER, BLOCK,
            )  # fmt: skip
        else:
            us, ut, tt = _reference_rows(
                scores + Nq * Nr, pull + above * Nr, change + Nq * Nr, table, decay,
                (unit - above) * ROWS + tl.arange(0, ROWS), r, Nr, Wr, START, ETA, LAST,
            )  # fmt: skip
        along += us
        squared += ut
        curvature += tt
    if not START:
        if QUERY:
            count = groups * tl.num_programs(0)
            to = parts + batch * 3 * count + group * tl.num_programs(0) + tl.program_id(0)
            tl.store(to, tl.sum(along, 0))
            tl.store(to + count, tl.sum(squared, 0))
            tl.store(to + 2 * count, tl.sum(curvature, 0))
        else:
            to = parts + (batch * 3 * groups + group) * Nr + r
            tl.store(to, along, r < Nr)
            tl.store(to + groups * Nr, squared, r < Nr)
            tl.store(to + 2 * groups * Nr, curvature, r < Nr)


@triton.jit
def _total(parts, count, PARTS: tl.constexpr):
    acc = tl.zeros((PARTS,), tl.float32)
    for first in range(0, count, PARTS):
        part = first + tl.arange(0, PARTS)
        acc += tl.load(parts + part, part < count, 0.0)
    return tl.sum(acc, 0)


@triton.jit
def _totals_of_locations(parts, r, count, Nr, GROUPS: tl.constexpr):
    part = tl.arange(0, GROUPS)
    keep = (part < count)[:, None] & (r < Nr)[None, :]
    return tl.sum(tl.load(parts + part[:, None] * Nr + r[None, :], keep, 0.0), 0)


@triton.jit
def _update_kernel(
    scores, pull, change, smoothed, table, regularization, by_sample, step_factor, parts, energy, next_energy, out,
    Nq, Nr, Wr, count, floor,
    FINAL: tl.constexpr, QUERY: tl.constexpr, ETA: tl.constexpr, LAST: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The step, then the new S, P, U and ‖w‖²; after the last step, only the query scores."""
    batch = tl.program_id(2).to(tl.int64)
    r, k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    decay, factor = tl.load(regularization + batch * by_sample), tl.load(step_factor)
    energy += batch * Nr
    if QUERY:  # one step per sample; ‖w‖² is given by location at first, and for the whole sample afterwards
        parts += batch * 3 * count
        along, squared = _total(parts, count, PARTS), _total(parts + count, count, PARTS)
        curvature, norm = _total(parts + 2 * count, count, PARTS), _total(energy, Nr, PARTS)
    else:
        parts += batch * 3 * count * Nr
        along = _totals_of_locations(parts, r, count, Nr, PARTS)[None, :]
        squared = _totals_of_locations(parts + count * Nr, r, count, Nr, PARTS)[None, :]
        curvature = _totals_of_locations(parts + 2 * count * Nr, r, count, Nr, PARTS)[None, :]
        norm = tl.load(energy + r, r < Nr, 0.0)[None, :]
    along += decay * norm  # ⟨w, g⟩
    numerator = tl.maximum(squared + decay * along, 0.0)
    step = factor * (numerator / tl.maximum(curvature + decay * numerator, floor))
    if not FINAL:
        left = tl.maximum(norm - step * (2 * along - step * numerator), 0.0)
        if QUERY:
            left = tl.where(r == 0, left, 0.0)[None, :]
        tl.store(next_energy + batch * Nr + r[None, :], left, ((r < Nr) & (tl.program_id(1) == 0))[None, :])
    rows = Nq if FINAL else Nq + Nr
    at, keep = k[:, None] * Nr + r[None, :], (k < rows)[:, None] & (r < Nr)[None, :]
    here = batch * (Nq + Nr) * Nr + at
    s = tl.load(scores + here, keep, 0.0)
    s -= step * (tl.load(change + here, keep, 0.0) + decay * s)
    if FINAL:
        tl.store(out + batch * Nq * Nr + at, s.to(out.dtype.element_ty), keep)
    else:
        tl.store(scores + here, s, keep)
        of_query, of_reference = keep & (k < Nq)[:, None], keep & (k >= Nq)[:, None]
        above = Nq if QUERY else 0
        to = pull + batch * (above + Nr) * Nr + (k - Nq + above)[:, None] * Nr + r[None, :]
        absolute, linear, target = _coefficients(table, k - Nq, r, Wr, LAST)
        slope, residual = _slope_and_residual(s, absolute, linear, target, ETA)
        value = slope * residual
        if QUERY:  # rows of the query hold P
            moved = step * tl.load(smoothed + batch * Nq * Nr + at, of_query, 0.0)
            value = tl.where(of_query, tl.load(to, of_query, 0.0) - moved, value)
            of_reference = keep
        tl.store(to, value, of_reference)


def volume(reference: Tensor, query: Tensor, parameters: GlobalParameters, options: GlobalOptions) -> Tensor:
    """The volume of global GOCor, `(B, Hq·Wq, Hr, Wr)`, in the reference's dtype; see `operators.global_volume`."""
    beta, gamma, table, regularization, step_factor, taps, first, second = parameters
    iters, eta, floor, stabilizer = options
    by_sample = int(regularization.numel() > 1)
    batch, _, hr, wr = reference.shape
    hq, wq = query.shape[2:]
    m, n = hq * wq, hr * wr
    with_query, last = taps is not None, table.shape[1] - 1
    features, filters, energy = _start(reference, query, beta, gamma, stabilizer)
    if iters == 0:
        return torch.bmm(features[:, :, :m].mT, filters).to(reference.dtype).view(batch, m, hr, wr)
    scores = torch.bmm(features.mT, filters)  # (B, Nq+Nr, Nr)
    gram = torch.bmm(features.mT, features if with_query else features[:, :, m:])
    change, pull = torch.empty_like(scores), scores.new_empty(batch, gram.shape[2], n)
    energies, out = [energy, torch.empty_like(energy)], reference.new_empty(batch, m, hr, wr)
    smoothed = rhos = between = scores.new_empty(0)
    if second is not None:
        smoothed = scores.new_empty(batch, m, n)
        rhos, between = (scores.new_empty(batch, hq, wq, hr, wr, k) for k in second.shape[1:])
    blocks, units = triton.cdiv(n, COLUMNS), triton.cdiv(n, ROWS) + (m if with_query else 0)
    groups = min(units, max(1, PARTS // blocks) if with_query else PARTS_OF_LOCATION)
    parts = scores.new_empty(batch, 3, groups, blocks if with_query else n)
    constants = {"QUERY": with_query, "ETA": eta, "LAST": last, "ROWS": ROWS, "BLOCK": COLUMNS, "num_warps": 4}

    def add_up(volume: Tensor, start: bool) -> None:
        if second is not None:
            _smooth_over_reference(volume, (hq, wq, hr, wr), taps, second, rhos, between)
        _sums_kernel[(blocks, groups, batch)](
            scores, pull, change, between, first if first is not None else between, smoothed, table, regularization,
            by_sample, parts, m, n, hq, wq, wr, units, START=start, INTER=first.shape[1] if first is not None else 1,
            **constants,
        )  # fmt: skip

    add_up(scores, True)
    for turn in range(iters):
        torch.bmm(gram, pull, out=change)
        add_up(change, False)
        final = turn == iters - 1
        _update_kernel[(blocks, triton.cdiv(m if final else m + n, ROWS), batch)](
            scores, pull, change, smoothed, table, regularization, by_sample, step_factor, parts, *energies, out,
            m, n, wr, groups * blocks if with_query else groups, floor, FINAL=final,
            PARTS=PARTS if with_query else PARTS_OF_LOCATION, **constants,
        )  # fmt: skip
        energies.reverse()
    return out


def _start(
    reference: Tensor, query: Tensor, beta: Tensor, gamma: Tensor | None, stabilizer: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Features of query and reference `(B, D, Nq+Nr)`, filters `(B, D, Nr)` and their squared norms `(B, Nr)`."""
    reference, query = dense(reference), dense(query)
    batch, channels = reference.shape[:2]
    m, n = query.shape[2:].numel(), reference.shape[2:].numel()
    features = reference.new_empty(batch, channels, m + n, dtype=torch.float32)
    filters, mean = features.new_empty(batch, channels, n), features.new_empty(batch, channels)
    energy = features.new_empty(batch, n)
    _gather_kernel[(triton.cdiv(channels, 8), batch)](
        reference, query, features, mean, channels, m, n, *strides(reference), *strides(query),
        BLOCK_C=8, BLOCK=128, num_warps=4,
    )  # fmt: skip
    _start_kernel[(triton.cdiv(n, 8), batch)](
        features, mean, beta, gamma, filters, energy, channels, m, n, stabilizer,
        CONTEXT=gamma is not None, FLEXIBLE=int(beta.numel() > 1), BLOCK_C=CHANNELS, BLOCK=8, num_warps=4,
    )  # fmt: skip
    return features, filters, energy


def _smooth_over_reference(
    volume: Tensor, size: tuple[int, int, int, int], taps: Tensor | None, second: Tensor, rhos: Tensor, between: Tensor
) -> None:
    """R ∗ the first rows of a volume `(B, Hq·Wq, Hr·Wr)`, and the part of Rᵀ over the reference."""
    hq, wq, hr, wr = size
    batch, blocks = len(volume), triton.cdiv(hr * wr, BLOCK)
    queries = QUERIES
    while queries > 1 and batch * blocks * triton.cdiv(hq * wq, queries) < PROGRAMS:
        queries //= 2
    _, channels, inter = second.shape
    _smooth_kernel[(blocks, triton.cdiv(hq * wq, queries), batch)](
        volume, taps, rhos, hq, wq, hr, wr, volume.stride(0), OUT=channels, BLOCK=BLOCK, QUERIES=queries,
        PRECISION=precision(volume), **LOOPS,
    )  # fmt: skip
    _adjoint_over_reference_kernel[(batch * hq * wq, triton.cdiv(hr * wr, ADJOINT_BLOCK))](
        rhos, second, between, hr, wr, OUT=channels, INTER=inter, BLOCK=ADJOINT_BLOCK, PRECISION=precision(volume),
        num_warps=4,
    )  # fmt: skip
