"""From an image's own size to the size at which a network works, and back."""

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ..ops.select import certain
from ..ops.warp import resize_flow, scale_flow
from ..utils.checks import check_count

MIN_MAX_SIZE = 16  # Smallest `max_size`, in pixels.
MAX_ENLARGEMENT = 3  # Largest factor by which `min_size` enlarges an image.
MAX_AREA_ENLARGEMENT = 1.5  # The same for `min_area`; beyond it, matches get worse.


def bounded_size(
    height: int, width: int, min_size: int, max_size: int | None, min_area: float = 0.0
) -> tuple[int, int]:
    """The size of an image, scaled so that its longer side is within bounds; see `MatchingNetwork.working_size`.

    Args:
        height: height of the image.
        width: width of the image.
        min_size: lower bound of the longer side; 0 for none.
        max_size: upper bound of the longer side, or `None`.
        min_area: lower bound of the area, in units of `min_size`².
    """
    check_count("min_size", min_size)
    if min_size == 0 and max_size is None:
        return height, width
    longer = max(height, width)
    for_area = min_size * math.sqrt(min_area / (height * width))
    wanted = max(longer, min(min_size, MAX_ENLARGEMENT * longer), longer * min(for_area, MAX_AREA_ENLARGEMENT))
    if max_size is not None:
        check_count("max_size", max_size, minimum=MIN_MAX_SIZE)
        wanted = min(wanted, max_size)
    if wanted == longer:
        return height, width
    scale = wanted / longer
    return max(1, round(height * scale)), max(1, round(width * scale))


def resize_image(image: Tensor, size: tuple[int, int], *, published: bool) -> Tensor:
    """Resize `(B, 3, H, W)` in [0, 255] with anti-aliasing, or by truncated area averages as published code does."""
    if certain(image.shape[2] == size[0]) and certain(image.shape[3] == size[1]):
        return image
    if not published:
        return F.interpolate(image, size, mode="bilinear", align_corners=False, antialias=True)
    return F.interpolate(image, size, mode="area").floor()


def full_resolution(
    flow: Tensor, working_size: tuple[int, int], size: tuple[int, int], query_size: tuple[int, int]
) -> Tensor:
    """Flow in pixels of the working size → flow on the reference's own grid, in the query's own pixels."""
    grid = flow.shape[2], flow.shape[3]
    flow = scale_flow(flow, grid[1] / working_size[1], grid[0] / working_size[0])  # in pixels of its own grid
    return resize_flow(flow, size, query_size=grid, new_query_size=query_size)


def upsample(x: Tensor, size: Any) -> Tensor:
    """Bilinear interpolation to a size (align_corners=False)."""
    return F.interpolate(x, size, mode="bilinear", align_corners=False)
