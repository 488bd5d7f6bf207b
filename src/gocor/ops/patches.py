"""Comparison of images patch by patch."""

import torch.nn.functional as F
from torch import Tensor

PATCH = 11  # side of a patch in pixels
CONTRAST = 3.0  # least standard deviation of brightness, in [0, 255], of a patch with enough texture to compare


def box(values: Tensor, side: int) -> Tensor:
    """Mean over the square of odd side around each pixel; pixels outside the image do not count."""
    rows = F.avg_pool2d(values, (1, side), 1, (0, side // 2), count_include_pad=False)
    return F.avg_pool2d(rows, (side, 1), 1, (side // 2, 0), count_include_pad=False)


def patch_correlation(image: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Normalised cross-correlation of the patches around each pixel.

    Args:
        image: `(B, 3, H, W)` in [0, 255].
        other: likewise.

    Returns:
        The correlation of brightness, in [-1, 1], and the standard deviation of brightness in the first image's patch,
        both `(B, 1, H, W)`.
    """
    a, b = (x.float().mean(1, keepdim=True) for x in (image, other))
    a, b = a - box(a, PATCH), b - box(b, PATCH)
    first, second = box(a * a, PATCH), box(b * b, PATCH)
    return box(a * b, PATCH) / (first * second).sqrt().clamp(min=1), first.sqrt()
