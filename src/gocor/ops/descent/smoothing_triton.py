"""The query objective's operator R of global GOCor as Triton kernels.

R is a 4-D convolution of a volume x(q, r) over query and reference positions, zero-padded, with two factors: 3×3 taps
over q from one channel to I channels, then 3×3 taps over r from I to O channels. The forward kernel multiplies the
factors out: 81·O products per result in place of 9·I + 9·I·O. The adjoint applies them one after the other. Channels
are the last dimension.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..correlation.triton import precision, processors

BLOCK, QUERIES = 64, 16  # reference and query positions that a program of the forward kernel takes
ADJOINT_BLOCK = 128  # reference positions that a program of the adjoint takes
# Two stages keep the loads in flight in 78 kB of shared memory; three would not fit on every GPU.
LOOPS = {"num_warps": 8, "num_stages": 2}
PROGRAMS_PER_PROCESSOR = 2  # programs of the taps' gradient; each takes many query positions


@triton.jit
def _reference_taps(r, t, Hr, Wr):
    """Positions in a reference plane of pixels r moved by taps t, `(r, t)`, and whether they are inside."""
    y, x = (r // Wr)[:, None] + (t // 3 % 3 - 1)[None, :], (r % Wr)[:, None] + (t % 3 - 1)[None, :]
    inside = (r < Hr * Wr)[:, None] & (t < 81)[None, :] & (y >= 0) & (y < Hr) & (x >= 0) & (x < Wr)
    return y * Wr + x, inside


@triton.jit
def _query_taps(q, t, Hq, Wq):
    """The same for one query position q, `(t,)`."""
    y, x = q // Wq + t // 27 - 1, q % Wq + t // 9 % 3 - 1
    return y * Wq + x, (y >= 0) & (y < Hq) & (x >= 0) & (x < Wq)


@triton.jit
def _smooth_kernel(
    x, taps, out, Hq, Wq, Hr, Wr, stride,
    OUT: tl.constexpr, BLOCK: tl.constexpr, QUERIES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(2).to(tl.int64)
    r, t, o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 128), tl.arange(0, OUT)
    in_plane, inside = _reference_taps(r, t, Hr, Wr)
    weights = tl.load(taps + t[:, None] * OUT + o[None, :], (t < 81)[:, None], 0.0)
    for turn in range(QUERIES):
        q = tl.program_id(1) * QUERIES + turn
        plane, known = _query_taps(q, t, Hq, Wq)
        known = known & (q < Hq * Wq)
        values = tl.load(x + batch * stride + (plane * (Hr * Wr))[None, :] + in_plane, inside & known[None, :], 0.0)
        result = tl.dot(values, weights, input_precision=PRECISION)
        position = (batch * Hq * Wq + q) * (Hr * Wr) + r
        tl.store(out + position[:, None] * OUT + o[None, :], result, ((r < Hr * Wr) & (q < Hq * Wq))[:, None])


@triton.jit
def _adjoint_over_reference_kernel(
    smoothed, second, out, Hr, Wr, OUT: tl.constexpr, INTER: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    plane = tl.program_id(0).to(tl.int64) * (Hr * Wr)
    r, o, i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, OUT), tl.arange(0, INTER)
    acc = tl.zeros((BLOCK, INTER), tl.float32)
    for tap in tl.static_range(9):
        y, x = r // Wr + 1 - tap // 3, r % Wr + 1 - tap % 3
        inside = (r < Hr * Wr) & (y >= 0) & (y < Hr) & (x >= 0) & (x < Wr)
        values = tl.load(smoothed + (plane + y * Wr + x)[:, None] * OUT + o[None, :], inside[:, None], 0.0)
        weights = tl.load(second + (tap * OUT + o)[:, None] * INTER + i[None, :])
        acc = tl.dot(values, weights, acc, input_precision=PRECISION)
    tl.store(out + (plane + r)[:, None] * INTER + i[None, :], acc, (r < Hr * Wr)[:, None])


@triton.jit
def _adjoint_over_query_kernel(between, first, out, Hq, Wq, N, INTER: tl.constexpr, BLOCK: tl.constexpr):
    q, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    r, i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, INTER)
    acc = tl.zeros((BLOCK, INTER), tl.float32)
    for tap in tl.static_range(9):
        y, x = q // Wq + 1 - tap // 3, q % Wq + 1 - tap % 3
        inside = (r < N) & (y >= 0) & (y < Hq) & (x >= 0) & (x < Wq)
        at = ((batch * Hq * Wq + y * Wq + x) * N + r)[:, None] * INTER + i[None, :]
        acc += tl.load(between + at, inside[:, None], 0.0) * tl.load(first + tap * INTER + i)[None, :]
    tl.store(out + (batch * Hq * Wq + q) * N + r, tl.sum(acc, 1), r < N)


@triton.jit
def _taps_gradient_kernel(
    x, smoothed, out, B, Hq, Wq, Hr, Wr, stride, turns,
    OUT: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(Hr * Wr, BLOCK)
    program, programs = tl.program_id(0), tl.num_programs(0)
    r, t, o = program % blocks * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 128), tl.arange(0, OUT)
    in_plane, inside = _reference_taps(r, t, Hr, Wr)
    acc = tl.zeros((128, OUT), tl.float32)
    for turn in range(turns):
        index = turn * (programs // blocks) + program // blocks
        batch, q = (index // (Hq * Wq)).to(tl.int64), index % (Hq * Wq)
        plane, known = _query_taps(q, t, Hq, Wq)
        known = known & (batch < B)
        values = tl.load(x + batch * stride + (plane * (Hr * Wr))[None, :] + in_plane, inside & known[None, :], 0.0)
        at = ((batch * Hq * Wq + q) * (Hr * Wr) + r)[:, None] * OUT + o[None, :]
        results = tl.load(smoothed + at, ((r < Hr * Wr) & (batch < B))[:, None], 0.0)
        acc = tl.dot(tl.trans(values), results, acc, input_precision=PRECISION)
    tl.store(out + (program * 81 + t)[:, None] * OUT + o[None, :], acc, (t < 81)[:, None])


def smooth(volume: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """R ∗ volume.

    Args:
        volume: `(B, Hq, Wq, Hr, Wr)`.
        first: taps over the query, `(9, I)`.
        second: taps over the reference, `(9, O, I)`.

    Returns:
        `(B, Hq, Wq, Hr, Wr, O)`.
    """
    volume, channels = _dense(volume), second.shape[1]
    batch, hq, wq, hr, wr = volume.shape
    taps = torch.einsum("qi,roi->qro", first, second)
    out = volume.new_empty(*volume.shape, channels)
    _smooth_kernel[(triton.cdiv(hr * wr, BLOCK), triton.cdiv(hq * wq, QUERIES), batch)](
        volume, taps, out, hq, wq, hr, wr, volume.stride(0), OUT=channels, BLOCK=BLOCK, QUERIES=QUERIES,
        PRECISION=precision(volume), **LOOPS,
    )  # fmt: skip
    return out


def smooth_adjoint(smoothed: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Rᵀ: `(B, Hq, Wq, Hr, Wr, O)` → `(B, Hq, Wq, Hr, Wr)`."""
    batch, hq, wq, hr, wr, channels = smoothed.shape
    inter, blocks = first.shape[1], triton.cdiv(hr * wr, ADJOINT_BLOCK)
    between = smoothed.new_empty(batch, hq, wq, hr, wr, inter)
    _adjoint_over_reference_kernel[(batch * hq * wq, blocks)](
        smoothed, second, between, hr, wr, OUT=channels, INTER=inter, BLOCK=ADJOINT_BLOCK,
        PRECISION=precision(smoothed), num_warps=4,
    )  # fmt: skip
    out = smoothed.new_empty(batch, hq, wq, hr, wr)
    _adjoint_over_query_kernel[(blocks, hq * wq, batch)](
        between, first, out, hq, wq, hr * wr, INTER=inter, BLOCK=ADJOINT_BLOCK, num_warps=4
    )
    return out


def taps_gradient(volume: Tensor, smoothed: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨smoothed, R ∗ volume⟩ with respect to the two factors of the taps."""
    volume, channels = _dense(volume), smoothed.shape[5]
    batch, hq, wq, hr, wr = volume.shape
    blocks = triton.cdiv(hr * wr, BLOCK)
    groups = max(1, min(batch * hq * wq, PROGRAMS_PER_PROCESSOR * processors(volume.device) // blocks))
    out = volume.new_empty(groups * blocks, 81, channels)
    _taps_gradient_kernel[(groups * blocks,)](
        volume, smoothed, out, batch, hq, wq, hr, wr, volume.stride(0), triton.cdiv(batch * hq * wq, groups),
        OUT=channels, BLOCK=BLOCK, PRECISION=precision(volume), **LOOPS,
    )  # fmt: skip
    taps = out.sum(0).view(9, 9, channels)
    return torch.einsum("qro,roi->qi", taps, second), torch.einsum("qro,qi->roi", taps, first)


def _dense(volume: Tensor) -> Tensor:
    """A volume whose samples are each contiguous."""
    return volume if volume[0].is_contiguous() else volume.contiguous()
