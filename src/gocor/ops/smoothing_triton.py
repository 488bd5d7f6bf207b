"""The query term's operator R of global GOCor as Triton kernels.

R is a 4-D convolution of a volume x(q, r) over query and reference positions, 3×3×3×3 taps and O output channels,
zero outside. Its factors are multiplied out before: 81·O products for a result in place of 9·I + 9·I·O. The result is
held channels last.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .local_triton import precision

BLOCK = 64
SPLITS_PER_PROCESSOR = 2  # partial sums of the weights' gradient


@triton.jit
def _taps(x, q, r, t, Hq, Wq, Hr, Wr):
    """Entries of one sample's volume at query position q and reference positions r, moved by taps t: `(r, t)`."""
    qy, qx = q // Wq + t // 27 - 1, q % Wq + t // 9 % 3 - 1
    ry, rx = (r // Wr)[:, None] + (t // 3 % 3 - 1)[None, :], (r % Wr)[:, None] + (t % 3 - 1)[None, :]
    in_query = (t < 81) & (qy >= 0) & (qy < Hq) & (qx >= 0) & (qx < Wq)
    in_reference = (r < Hr * Wr)[:, None] & (ry >= 0) & (ry < Hr) & (rx >= 0) & (rx < Wr)
    at = ((qy * Wq + qx) * (Hr * Wr))[None, :] + ry * Wr + rx
    return tl.load(x + at, in_query[None, :] & in_reference, 0.0)


@triton.jit
def _smooth_kernel(
    x, kernel, out, Hq, Wq, Hr, Wr, stride, O: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    q, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    r, t, o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 128), tl.arange(0, O)
    values = _taps(x + batch * stride, q, r, t, Hq, Wq, Hr, Wr)
    weights = tl.load(kernel + t[:, None] * O + o[None, :], (t < 81)[:, None], 0.0)
    result = tl.dot(values, weights, input_precision=PRECISION)
    position = (batch * Hq * Wq + q) * (Hr * Wr) + r
    tl.store(out + position[:, None] * O + o[None, :], result, (r < Hr * Wr)[:, None])


@triton.jit
def _adjoint_kernel(smoothed, kernel, out, Hq, Wq, Hr, Wr, O: tl.constexpr, BLOCK: tl.constexpr):
    q, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    r, o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, O)
    ry, rx = r // Wr, r % Wr
    acc = tl.zeros((BLOCK, O), tl.float32)
    for tq in range(9):
        qy, qx = q // Wq + 1 - tq // 3, q % Wq + 1 - tq % 3
        in_query = (qy >= 0) & (qy < Hq) & (qx >= 0) & (qx < Wq)
        plane = (batch * Hq * Wq + qy * Wq + qx) * (Hr * Wr)
        for tr in tl.static_range(9):
            y, x = ry + 1 - tr // 3, rx + 1 - tr % 3
            inside = in_query & (r < Hr * Wr) & (y >= 0) & (y < Hr) & (x >= 0) & (x < Wr)
            weights = tl.load(kernel + (tq * 9 + tr) * O + o)
            at = (plane + y * Wr + x)[:, None] * O + o[None, :]
            acc += tl.load(smoothed + at, inside[:, None], 0.0) * weights[None, :]
    tl.store(out + (batch * Hq * Wq + q) * (Hr * Wr) + r, tl.sum(acc, 1), r < Hr * Wr)


@triton.jit
def _weights_kernel(
    x, smoothed, out, blocks, Hq, Wq, Hr, Wr, stride, per_program,
    O: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    per_query = tl.cdiv(Hr * Wr, BLOCK)
    t, o = tl.arange(0, 128), tl.arange(0, O)
    acc = tl.zeros((128, O), tl.float32)
    for turn in range(per_program):
        index = turn * programs + program
        batch, q = (index // (per_query * Hq * Wq)).to(tl.int64), index // per_query % (Hq * Wq)
        r = index % per_query * BLOCK + tl.arange(0, BLOCK)
        r = tl.where(index < blocks, r, Hr * Wr)  # beyond the end: nothing is read
        values = _taps(x + batch * stride, q, r, t, Hq, Wq, Hr, Wr)
        position = (batch * Hq * Wq + q) * (Hr * Wr) + r
        rho = tl.load(smoothed + position[:, None] * O + o[None, :], (r < Hr * Wr)[:, None], 0.0)
        acc = tl.dot(tl.trans(values), rho, acc, input_precision=PRECISION)
    at = out + program * 81 * O + t[:, None] * O + o[None, :]
    tl.store(at, acc, (t < 81)[:, None])


def smooth(volume: Tensor, kernel: Tensor) -> Tensor:
    """R ∗ volume: `(B, Hq, Wq, Hr, Wr)` and taps `(81, O)` → `(B, Hq, Wq, Hr, Wr, O)`."""
    volume = _dense(volume)
    batch, hq, wq, hr, wr = volume.shape
    out = volume.new_empty(*volume.shape, kernel.shape[1])
    _smooth_kernel[(triton.cdiv(hr * wr, BLOCK), hq * wq, batch)](
        volume, kernel, out, hq, wq, hr, wr, volume.stride(0), O=kernel.shape[1], BLOCK=BLOCK,
        PRECISION=precision(volume), num_warps=4,
    )  # fmt: skip
    return out


def smooth_adjoint(smoothed: Tensor, kernel: Tensor) -> Tensor:
    """Rᵀ: `(B, Hq, Wq, Hr, Wr, O)` → `(B, Hq, Wq, Hr, Wr)`."""
    batch, hq, wq, hr, wr, channels = smoothed.shape
    out = smoothed.new_empty(batch, hq, wq, hr, wr)
    _adjoint_kernel[(triton.cdiv(hr * wr, BLOCK), hq * wq, batch)](
        smoothed, kernel, out, hq, wq, hr, wr, O=channels, BLOCK=BLOCK, num_warps=4
    )
    return out


def kernel_gradient(volume: Tensor, smoothed: Tensor) -> Tensor:
    """Gradient of ⟨smoothed, R ∗ volume⟩ by the taps, `(81, O)`."""
    volume = _dense(volume)
    batch, hq, wq, hr, wr = volume.shape
    blocks, channels = batch * hq * wq * triton.cdiv(hr * wr, BLOCK), smoothed.shape[5]
    programs = min(blocks, SPLITS_PER_PROCESSOR * _processors(volume.device))
    out = volume.new_empty(programs, 81, channels)
    _weights_kernel[(programs,)](
        volume, smoothed, out, blocks, hq, wq, hr, wr, volume.stride(0), triton.cdiv(blocks, programs), O=channels,
        BLOCK=BLOCK, PRECISION=precision(volume), num_warps=8,
    )  # fmt: skip
    return out.sum(0)


def _dense(volume: Tensor) -> Tensor:
    """A volume whose samples are contiguous each; they may lie apart."""
    return volume if volume[0].is_contiguous() else volume.contiguous()


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
