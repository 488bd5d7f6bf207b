"""Local correlation and its adjoints as Triton kernels.

One program takes a tile of TY×TX filters. The query pixels that these can reach lie in TY+2R rows of TX+2R pixels. The
products of the tile with such a row run on tensor cores, and the displacements are a band of the result. Features may
be channels first or channels last, and operands may differ in dtype. Products are accumulated in float32.
"""

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

TY, TX = 8, 8
SIDES = {"reference": 0, "query": 1, "both": 2}


def precision(*operands: Tensor, exact: bool = False) -> str:
    """How tensor cores multiply: `"tf32"` rounds float32 operands to 11 bits, `"tf32x3"` is as exact as float32.

    16-bit operands are exact in TF32. Otherwise TF32 is used where an operand has 16 bits anyway or where torch allows
    it for its own matrix products, unless the products must be `exact`.
    """
    narrow = [x.dtype.itemsize == 2 for x in operands]
    if all(narrow) or (not exact and (any(narrow) or torch.backends.cuda.matmul.allow_tf32)):
        return "tf32"
    return "tf32x3"


@triton.jit
def _correlate_kernel(
    reference, query, volume, H, W, tiles_x, scale, rb, rc, rp, qb, qc, qp, vb, vc, vp,
    C: tl.constexpr, R: tl.constexpr, KEYS: tl.constexpr, TY: tl.constexpr, TX: tl.constexpr,
    BLOCK_C: tl.constexpr, PRECISION: tl.constexpr, MIXED: tl.constexpr,
):  # fmt: skip
    tile, row, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    f = tl.arange(0, TY * TX)
    y, x = tile // tiles_x * TY + f // TX, tile % tiles_x * TX + f % TX
    ky, kx = tile // tiles_x * TY - R + row, tile % tiles_x * TX - R + tl.arange(0, KEYS)
    in_filters = (y < H) & (x < W)
    in_keys = (ky >= 0) & (ky < H) & (kx >= 0) & (kx < W)
    own, other = reference + batch * rb + (y * W + x) * rp, query + batch * qb + (ky * W + kx) * qp
    acc = tl.zeros((TY * TX, KEYS), tl.float32)
    for start in range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        a = tl.load(own[:, None] + c[None, :] * rc, in_filters[:, None] & (c < C)[None, :], 0.0)
        k = tl.load(other[None, :] + c[:, None] * qc, (c < C)[:, None] & in_keys[None, :], 0.0)
        if MIXED:
            a, k = a.to(tl.float32), k.to(tl.float32)
        acc = tl.dot(a, k, acc, input_precision=PRECISION)
    dy, dx = ky - y[:, None], kx[None, :] - x[:, None]
    keep = in_filters[:, None] & (dy >= -R) & (dy <= R) & (dx >= -R) & (dx <= R)
    to = batch * vb + ((dy + R) * (2 * R + 1) + dx + R) * vc + ((y * W + x) * vp)[:, None]
    tl.store(volume + to, (acc * scale).to(volume.dtype.element_ty), keep)


@triton.jit
def _adjoint_kernel(
    volume, features, out, H, W, tiles_x, scale, fb, fc, fp, ob, oc, op, SIDE: tl.constexpr,
    C: tl.constexpr, R: tl.constexpr, KEYS: tl.constexpr, TY: tl.constexpr, TX: tl.constexpr,
    BLOCK_C: tl.constexpr, PRECISION: tl.constexpr, MIXED: tl.constexpr,
):  # fmt: skip
    tile, block, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    f = tl.arange(0, TY * TX)
    y, x = tile // tiles_x * TY + f // TX, tile % tiles_x * TX + f % TX
    kx = tile % tiles_x * TX - R + tl.arange(0, KEYS)
    c = block * BLOCK_C + tl.arange(0, BLOCK_C)
    in_filters = (y < H) & (x < W)
    volume += batch * (2 * R + 1) * (2 * R + 1) * H * W
    acc = tl.zeros((TY * TX, BLOCK_C), tl.float32)
    for row in range(0, TY + 2 * R):
        ky = tile // tiles_x * TY - R + row
        in_keys = (ky >= 0) & (ky < H) & (kx >= 0) & (kx < W)
        dy, dx = ky - y[:, None], kx[None, :] - x[:, None]
        keep = in_filters[:, None] & in_keys[None, :] & (dy >= -R) & (dy <= R) & (dx >= -R) & (dx <= R)
        if SIDE == 1:
            u = tl.zeros((TY * TX, KEYS), volume.dtype.element_ty)
        else:
            channel = (dy + R) * (2 * R + 1) + dx + R
            u = tl.load(volume + channel * H * W + (y * W + x)[:, None], keep, 0.0)
        if SIDE != 0:  # the volume as seen from the query: displacement −d, at the key
            channel = (R - dy) * (2 * R + 1) + R - dx
            u += tl.load(volume + channel * H * W + (ky * W + kx)[None, :], keep, 0.0)
        at = features + batch * fb + (ky * W + kx)[:, None] * fp + c[None, :] * fc
        k = tl.load(at, in_keys[:, None] & (c < C)[None, :], 0.0)
        if MIXED:
            u, k = u.to(tl.float32), k.to(tl.float32)
        acc = tl.dot(u, k, acc, input_precision=PRECISION)
    to = out + batch * ob + ((y * W + x) * op)[:, None] + c[None, :] * oc
    tl.store(to, (acc * scale).to(out.dtype.element_ty), in_filters[:, None] & (c < C)[None, :])


def correlate(
    reference: Tensor,
    query: Tensor,
    radius: int,
    scale: float,
    *,
    dtype: torch.dtype | None = None,
    exact: bool = False,
) -> Tensor:
    """See `reference.correlate`; for `exact` see `precision`."""
    batch, _, height, width = reference.shape
    volume = reference.new_empty(batch, (2 * radius + 1) ** 2, height, width, dtype=dtype or reference.dtype)
    _launch_correlate(reference, query, volume, (volume.stride(1), volume.stride(3)), radius, scale, exact)
    return volume


def autocorrelate(features: Tensor, radius: int) -> Tensor:
    """Scalar products of each pixel with its neighbours, in float32, displacements last: `(B, H, W, (2R+1)²)`."""
    batch, _, height, width = features.shape
    volume = features.new_empty(batch, height, width, (2 * radius + 1) ** 2, dtype=torch.float32)
    _launch_correlate(features, features, volume, (1, volume.shape[3]), radius, 1.0, True)
    return volume


def adjoint_reference(
    volume: Tensor,
    query: Tensor,
    radius: int,
    scale: float,
    *,
    dtype: torch.dtype | None = None,
    exact: bool = False,
) -> Tensor:
    """See `reference.adjoint_reference`; for `exact` see `precision`."""
    return adjoint(volume, query, radius, scale, "reference", dtype=dtype, exact=exact)


def adjoint_query(
    volume: Tensor,
    reference: Tensor,
    radius: int,
    scale: float,
    *,
    dtype: torch.dtype | None = None,
    exact: bool = False,
) -> Tensor:
    """See `reference.adjoint_query`; for `exact` see `precision`."""
    return adjoint(volume, reference, radius, scale, "query", dtype=dtype, exact=exact)


def adjoint(
    volume: Tensor,
    features: Tensor,
    radius: int,
    scale: float,
    side: Literal["reference", "query", "both"],
    *,
    dtype: torch.dtype | None = None,
    exact: bool = False,
) -> Tensor:
    """One of the two adjoints of a correlation, or their sum, in the memory layout of the features."""
    volume, features = volume.contiguous(), dense(features)
    batch, channels, height, width = features.shape
    out = torch.empty_like(features, dtype=dtype or features.dtype)
    tiles_y, tiles_x, block = triton.cdiv(height, TY), triton.cdiv(width, TX), _block(channels)
    if out.numel():
        _adjoint_kernel[(tiles_y * tiles_x, triton.cdiv(channels, block), batch)](
            volume, features, out, height, width, tiles_x, scale, *strides(features), *strides(out),
            SIDE=SIDES[side], C=channels, R=radius, KEYS=_keys(radius), TY=TY, TX=TX, BLOCK_C=block,
            PRECISION=precision(volume, features, exact=exact), MIXED=volume.dtype != features.dtype, num_warps=4,
        )  # fmt: skip
    return out


def _launch_correlate(
    reference: Tensor, query: Tensor, volume: Tensor, layout: tuple[int, int], radius: int, scale: float, exact: bool
) -> None:
    """Write into a volume whose channels and pixels have the strides `layout`."""
    reference, query = dense(reference), dense(query)
    batch, channels, height, width = reference.shape
    tiles_y, tiles_x = triton.cdiv(height, TY), triton.cdiv(width, TX)
    if volume.numel():
        _correlate_kernel[(tiles_y * tiles_x, TY + 2 * radius, batch)](
            reference, query, volume, height, width, tiles_x, scale, *strides(reference), *strides(query),
            volume.stride(0), *layout, C=channels, R=radius, KEYS=_keys(radius), TY=TY, TX=TX,
            BLOCK_C=_block(channels), PRECISION=precision(reference, query, exact=exact),
            MIXED=reference.dtype != query.dtype, num_warps=4,
        )  # fmt: skip


def dense(features: Tensor) -> Tensor:
    """Features without gaps, channels first or channels last."""
    return features if features.is_contiguous(memory_format=torch.channels_last) else features.contiguous()


def strides(features: Tensor) -> tuple[int, int, int]:
    """Strides of samples, channels and pixels."""
    _, channels, height, width = features.shape
    if features.is_contiguous():
        return channels * height * width, height * width, 1
    return channels * height * width, 1, channels


def processors(device: torch.device) -> int:
    """Number of multiprocessors of a GPU; a small number in Triton's interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def _keys(radius: int) -> int:
    return max(16, triton.next_power_of_2(TX + 2 * radius))  # tensor cores take at least 16 columns


def _block(channels: int) -> int:
    return 16 if channels <= 16 else 32
