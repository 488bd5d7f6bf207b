"""Comparison of images patch by patch."""

import torch.nn.functional as F
from torch import Tensor

PATCH = 11  # pixels
CONTRAST = 3.0  # standard deviation from which on a patch says something, of 255


def box(values: Tensor, side: int) -> Tensor:
    """Mean over the square around each pixel, of odd side, as far as it is inside."""
    return F.avg_pool2d(values, side, 1, side // 2, count_include_pad=False)


def patch_correlation(image: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """How alike the patches around each pixel are, whatever the light.

    Args:
        image: `(B, 3, H, W)` in [0, 255].
        other: likewise.

    Returns:
        Correlation of brightness in [-1, 1], and its standard deviation in the first image, both `(B, 1, H, W)`.
    """
    a, b = (x.float().mean(1, keepdim=True) for x in (image, other))
    a, b = a - box(a, PATCH), b - box(b, PATCH)
    first, second = box(a * a, PATCH), box(b * b, PATCH)
    return box(a * b, PATCH) / (first * second).sqrt().clamp(min=1), first.sqrt()
