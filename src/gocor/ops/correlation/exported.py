"""Local correlation in few operators, for exported graphs.

The specification takes one slice per displacement, 81 for a radius of 4, and GOCor's iterations repeat them. Such a
graph takes minutes to export and to load. Here the map is shifted along x once, and one slice is taken per row of
displacements. The graph holds no custom operator, and its sizes may be symbolic.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import accumulation_dtype


def correlate(
    reference: Tensor, query: Tensor, radius: int, scale: float, *, dtype: torch.dtype | None = None
) -> Tensor:
    """See `reference.correlate`."""
    acc = accumulation_dtype(reference, query)
    columns, height = _shifted_columns(query.to(acc), radius), reference.shape[2]
    left = reference.to(acc).unsqueeze(2)  # (B, C, 1, H, W)
    rows = [(left * columns[:, :, :, i : i + height]).sum(1) for i in range(2 * radius + 1)]
    return (scale * torch.cat(rows, 1)).to(dtype or reference.dtype)


def adjoint_reference(volume: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    """See `reference.adjoint_reference`."""
    acc = accumulation_dtype(volume, query)
    columns, height = _shifted_columns(query.to(acc), radius), query.shape[2]
    scores = volume.to(acc).unsqueeze(1).split(2 * radius + 1, 2)  # one (B, 1, 2R+1, H, W) per row of displacements
    out = torch.zeros_like(query, dtype=acc)
    for i, row in enumerate(scores):
        out = out + (row * columns[:, :, :, i : i + height]).sum(2)
    return (scale * out).to(query.dtype)


def _shifted_columns(x: Tensor, radius: int) -> Tensor:
    """`(B, C, H, W)` → `(B, C, 2R+1, H+2R, W)`: padded rows, read at x − R, …, x + R."""
    padded, width = F.pad(x, (radius,) * 4), x.shape[3]
    return torch.stack([padded[..., j : j + width] for j in range(2 * radius + 1)], 2)
