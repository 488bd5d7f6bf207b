"""Learnt functions of distance: piece-wise linear, on triangular basis functions (paper, appendix C)."""

import torch
from torch import Tensor

from ..ops.select import exporting


def triangular_basis(distance: Tensor, knots: int, spacing: float) -> Tensor:
    """The N basis functions ρ_k evaluated at distances.

    `ρ_k(d) = max(0, 1 − |d − kΔ|/Δ)` for k < N−1. The last one saturates, `clamp(1 + (d − (N−1)Δ)/Δ, 0, 1)`, so that
    everything from (N−1)Δ on is treated alike. They sum to one everywhere.

    Args:
        distance: any shape.
        knots: N ≥ 1.
        spacing: Δ > 0.

    Returns:
        Tensor `(..., N)`.
    """
    offset = distance.unsqueeze(-1) / spacing - torch.arange(knots, dtype=distance.dtype, device=distance.device)
    inner = (1 - offset[..., :-1].abs()).clamp(min=0)
    last = (1 + offset[..., -1:]).clamp(0, 1)
    return torch.cat([inner, last], -1)


def local_distances(radius: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Distance of each displacement of a local volume, `((2R+1)², 1, 1)`."""
    axis = torch.arange(-radius, radius + 1, dtype=dtype, device=device)
    return (axis[:, None].square() + axis[None].square()).sqrt().view(-1, 1, 1)


def displacement_distances(height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Distance of every displacement between two pixels of an H×W map, `(2H−1, 2W−1)`, zero in the middle."""
    y = torch.arange(1 - height, height, dtype=dtype, device=device)
    x = torch.arange(1 - width, width, dtype=dtype, device=device)
    return (y[:, None].square() + x[None].square()).sqrt()


def by_pair(by_displacement: Tensor, height: int, width: int, rows: slice = slice(None)) -> Tensor:
    """Values by displacement `(2H−1, 2W−1)` → values by pair of pixels `(H·W, H, W)`, for symmetric values.

    The functions of distance are evaluated once per displacement, not once per pair. With `rows`, only some rows of the
    last two dimensions are returned.
    """
    if exporting():  # `unfold` would fix the size of the exported graph
        y, x = (torch.arange(side, device=by_displacement.device) for side in (height, width))
        down, right = y - y.unsqueeze(1) + height - 1, x - x.unsqueeze(1) + width - 1  # by y′ and y, by x′ and x
        pairs = by_displacement[down[:, None, :, None], right[None, :, None, :]]
        return pairs.reshape(height * width, height, width)[:, rows]
    windows = by_displacement.unfold(0, height, 1).unfold(1, width, 1)  # [s, t, y, x] = by_displacement[s+y, t+x]
    windows = windows[:, :, rows].flip(0, 1)  # s = H−1−y′: displacement y − y′
    return windows.reshape(height * width, windows.shape[2], width)
