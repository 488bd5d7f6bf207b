"""Local correlation in plain torch: the specification that every faster form is tested against.

It takes one slice of the padded query per displacement. Autograd differentiates it, so its gradients are part of the
specification.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def accumulation_dtype(first: Tensor, second: Tensor) -> torch.dtype:
    """Products are accumulated in float32, or in the wider dtype of the operands."""
    return torch.promote_types(torch.promote_types(first.dtype, second.dtype), torch.float32)


def correlate(
    reference: Tensor, query: Tensor, radius: int, scale: float, *, dtype: torch.dtype | None = None
) -> Tensor:
    """`scale · Σ_c reference[c, y, x] · query[c, y+dy, x+dx]` → `(B, (2R+1)², H, W)`, in the reference's dtype."""
    acc = accumulation_dtype(reference, query)
    height, width = reference.shape[2:]
    window, left = F.pad(query.to(acc), (radius,) * 4), reference.to(acc)
    side = range(2 * radius + 1)
    volume = [(left * window[:, :, i : i + height, j : j + width]).sum(1) for i in side for j in side]
    return (scale * torch.stack(volume, 1)).to(dtype or reference.dtype)


def adjoint_reference(
    volume: Tensor, query: Tensor, radius: int, scale: float, *, dtype: torch.dtype | None = None
) -> Tensor:
    """`scale · Σ_d volume[d, y, x] · query[:, y+dy, x+dx]` → `(B, C, H, W)`, in the query's dtype."""
    acc = accumulation_dtype(volume, query)
    height, width = query.shape[2:]
    window, scores = F.pad(query.to(acc), (radius,) * 4), volume.to(acc)
    out = torch.zeros_like(query, dtype=acc)
    for index in range((2 * radius + 1) ** 2):
        i, j = divmod(index, 2 * radius + 1)
        out = out + scores[:, index : index + 1] * window[:, :, i : i + height, j : j + width]
    return (scale * out).to(dtype or query.dtype)


def adjoint_query(
    volume: Tensor, reference: Tensor, radius: int, scale: float, *, dtype: torch.dtype | None = None
) -> Tensor:
    """`scale · Σ_d volume[d, y-dy, x-dx] · reference[:, y-dy, x-dx]` → `(B, C, H, W)`, in the reference's dtype."""
    acc = accumulation_dtype(volume, reference)
    height, width = reference.shape[2:]
    scores, left = volume.to(acc), reference.to(acc)
    out = F.pad(torch.zeros_like(reference, dtype=acc), (radius,) * 4)
    for index in range((2 * radius + 1) ** 2):
        i, j = divmod(index, 2 * radius + 1)
        shifts = (j, 2 * radius - j, i, 2 * radius - i)
        out = out + F.pad(scores[:, index : index + 1] * left, shifts)
    return (scale * out[:, :, radius : radius + height, radius : radius + width]).to(dtype or reference.dtype)


def transpose_volume(volume: Tensor, radius: int) -> Tensor:
    """The same correspondences seen from the query: `out[d, y, x] = volume[-d, y+dy, x+dx]`, zero outside.

    `transpose_volume(correlate(a, b)) == correlate(b, a)`.
    """
    side = 2 * radius + 1
    batch, _, height, width = volume.shape
    flipped = volume.reshape(batch, side, side, height, width).flip(1, 2)
    padded = F.pad(flipped, (radius,) * 4).contiguous()
    sb, si, sj, sy, sx = padded.stride()
    # Displacement (i - R, j - R) reads the padded map at (y + i, x + j).
    shifted = padded.as_strided((batch, side, side, height, width), (sb, si + sy, sj + sx, sy, sx))
    return shifted.reshape(batch, side * side, height, width)
