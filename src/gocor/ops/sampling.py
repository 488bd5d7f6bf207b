"""Points of images, as arrays: whether they are inside, their pixels, and the values of maps at them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_inside(points: NDArray[Any], size: Sequence[int]) -> NDArray[np.bool_]:
    """Whether points `(N, 2)`, x then y, are inside an image of a size (height, width): `[0, W-1] × [0, H-1]`."""
    return np.asarray(((points >= 0) & (points <= (size[1] - 1, size[0] - 1))).all(1))


def nearest_pixels(points: NDArray[Any], size: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Column and row of the pixel of an image (height, width) that is nearest to each point `(N, 2)`."""
    x, y = np.rint(points).astype(np.intp).T
    return x.clip(0, size[1] - 1), y.clip(0, size[0] - 1)


def sample_flow(flow: NDArray[Any], points: NDArray[Any]) -> NDArray[np.float64]:
    """Bilinear samples `(N, C)` of a flow `(H, W, 2)` or other maps `(H, W, C)` at points `(N, 2)`, x then y.

    Points outside are moved to the border. Right and lower neighbours of weight 0 do not count, even if they are NaN.
    """
    height, width = flow.shape[:2]
    x, y = np.clip(points, 0, (width - 1, height - 1)).astype(np.float64).T
    left, top = np.minimum(x.astype(np.intp), max(width - 2, 0)), np.minimum(y.astype(np.intp), max(height - 2, 0))
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    u, v = (x - left)[:, None], (y - top)[:, None]
    upper = np.where(u > 0, flow[top, left] * (1 - u) + flow[top, right] * u, flow[top, left])
    lower = np.where(u > 0, flow[bottom, left] * (1 - u) + flow[bottom, right] * u, flow[bottom, left])
    return np.where(v > 0, upper * (1 - v) + lower * v, upper)
