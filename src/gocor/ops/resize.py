"""Resizing by area averages, also in graphs that are exported for any size."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .select import exporting


def resize_by_area(x: Tensor, size: tuple[int, int]) -> Tensor:
    """`(B, C, H, W)` → `(B, C, *size)`: each new pixel is the mean of the pixels that it touches.

    An exported graph multiplies by two matrices, because it can average windows of one size only.
    """
    if not exporting():
        return F.interpolate(x, size, mode="area")
    maps = x.flatten(0, 1)  # (B·C, H, W)
    down, across = (_averages(x.shape[2 + i], size[i], x).expand(maps.shape[0], -1, -1) for i in (0, 1))
    return torch.bmm(torch.bmm(down, maps), across.mT).unflatten(0, x.shape[:2])


def _averages(before: int, after: int, like: Tensor) -> Tensor:
    """Matrix `(after, before)` whose row i averages the pixels from ⌊i·before/after⌋ to ⌈(i+1)·before/after⌉ − 1."""
    row = torch.arange(after, device=like.device).unsqueeze(1)
    pixel = torch.arange(before, device=like.device)
    inside = (pixel >= row * before // after) & (pixel < ((row + 1) * before + after - 1) // after)
    return inside.to(like.dtype) / inside.sum(1, keepdim=True).to(like.dtype)
