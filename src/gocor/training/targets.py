"""Ground-truth flow for every level of a network, on the level's grid and in its units."""

import torch
from torch import Tensor

from ..ops.warp import scale_flow

# Largest difference of flow, in pixels, between neighbouring pixels of one surface. A zoom by 3 differs by 2.
SAME_SURFACE = 2.0


def level_target(flow: Tensor, mask: Tensor, grid: tuple[int, int], unit: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Flow at the pixel centres of a coarser grid.

    Flow is interpolated between the four pixels around a centre. Only known pixels on the surface of the nearest known
    pixel contribute, so that no value is a mean of two objects' motions or of known and unknown flow.

    Args:
        flow: `(B, 2, H, W)` in its own pixels.
        mask: `(B, 1, H, W)` bool, pixels whose flow is known.
        grid: (height, width) of the level.
        unit: (height, width) of the image in whose pixels the result is given.

    Returns:
        Flow `(B, 2, h, w)`, zero if unknown, and the mask of known pixels `(B, 1, h, w)` bool.
    """
    height, width = flow.shape[2:]
    mask = mask & flow.isfinite().all(1, keepdim=True)
    flow = torch.where(mask, flow, 0.0)
    if grid == (height, width):
        return scale_flow(flow, unit[1] / width, unit[0] / height), mask
    (top, bottom, down), (left, right, along) = (
        _between(old, new, flow) for old, new in zip((height, width), grid, strict=True)
    )
    down = down[:, None]
    corners = [(top, left), (top, right), (bottom, left), (bottom, right)]
    nearness = torch.stack([(1 - down) * (1 - along), (1 - down) * along, down * (1 - along), down * along])
    values = torch.stack([flow.index_select(2, y).index_select(3, x) for y, x in corners])  # (4, B, 2, h, w)
    known = torch.stack([mask.index_select(2, y).index_select(3, x) for y, x in corners])  # (4, B, 1, h, w)
    weight = nearness[:, None, None] * known
    nearest = weight.argmax(0, keepdim=True)
    anchor = values.gather(0, nearest.expand(1, *values.shape[1:]))
    weight = weight * ((values - anchor).square().sum(2, keepdim=True) <= SAME_SURFACE**2)
    total = weight.sum(0)
    mean = (weight * values).sum(0) / torch.where(total > 0, total, 1.0)
    return scale_flow(mean, unit[1] / width, unit[0] / height), total > 0


def _between(old: int, new: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Linear interpolation of an axis from `old` to `new` pixels: both neighbours, and the weight of the second."""
    centre = ((torch.arange(new, device=like.device, dtype=like.dtype) + 0.5) * (old / new) - 0.5).clamp(0, old - 1)
    before = centre.floor()
    after = (before + 1).clamp(max=old - 1)
    return before.long(), after.long(), centre - before
