"""Flow as colours: hue is the direction, saturation the length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..utils.checks import check_count
from ..utils.errors import InputError

Picture = NDArray[np.uint8]
FlowLike = Tensor | NDArray[Any]

# The wheel of Middlebury's flow pictures (Baker et al., "A database and evaluation methodology for optical flow", IJCV
# 2011): colours by direction as shares of a turn, clockwise from "to the right", most where the eye tells hues best.
WHEEL_AT = np.array([0, 15, 21, 25, 36, 49, 55]) / 55
WHEEL = np.array([(1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1), (1, 0, 1), (1, 0, 0)], np.float32)
TOO_LONG = 0.75  # brightness of flow beyond the scale
MIN_SCALE = 0.01  # pixels: anything shorter is rounding
LARGEST = 1e9  # flow beyond it is unknown, as in flow files


def flow_to_color(flow: FlowLike, max_flow: float | None = None) -> Picture:
    """Flow as colours: red is to the right, yellow down, cyan-blue left, violet up, white no motion.

    Args:
        flow: `(2, H, W)`, x then y; NaN, infinity and anything beyond 1e9 are unknown.
        max_flow: length in pixels that is drawn in full colour; by default `flow_scale(flow)`. Set it to compare
            pictures, or for the frames of a video. Longer flow is drawn darker.

    Returns:
        RGB `(H, W, 3)`, unknown pixels black.
    """
    values = as_flow(flow)
    scale = check_scale(flow_scale(values) if max_flow is None else max_flow)
    known = _known(values)
    dx, dy = np.where(known, values, 0)
    length = np.hypot(dx, dy) / np.float32(scale)
    turn = np.arctan2(dy, dx) / (2 * np.pi) % 1
    hue = np.stack([np.interp(turn, WHEEL_AT, channel) for channel in WHEEL.T], -1)  # (H, W, 3)
    colour = 1 - np.minimum(length, 1)[..., None] * (1 - hue)
    colour = np.where((length > 1)[..., None], TOO_LONG * hue, colour)
    return np.rint(255 * colour * known[..., None]).astype(np.uint8)


def flow_scale(flow: FlowLike) -> float:
    """Length in pixels to draw known flow `(2, H, W)` by: the greatest, kept from outliers, which would pale the rest.

    That is, at most 1.25 times what 99 % of the pixels stay below, unless those hardly move.
    """
    values = as_flow(flow)
    dx, dy = values[:, _known(values)]
    if not dx.size:
        return 1.0
    length = np.hypot(dx, dy)
    usual = float(np.percentile(length, 99))
    return max(min(float(length.max()), 1.25 * usual) if usual > MIN_SCALE else float(length.max()), MIN_SCALE)


def color_legend(size: int = 96) -> Picture:
    """The wheel on white, `(size, size, 3)`: from its centre to a point, flow has the colour of that point."""
    import cv2

    check_count("size", size, minimum=1)
    fine = 4 * size  # for a smooth edge
    across = (np.arange(fine, dtype=np.float32) - (fine - 1) / 2) / (fine / 2)
    flow = np.stack(np.meshgrid(across, across))
    wheel = np.where((np.hypot(*flow) <= 1)[..., None], flow_to_color(flow, 1.0), np.uint8(255))
    return np.asarray(cv2.resize(wheel, (size, size), interpolation=cv2.INTER_AREA))


def as_flow(flow: FlowLike) -> NDArray[np.float32]:
    """Flow `(2, H, W)`, tensor or array, as a float32 array."""
    values = np.asarray(flow.detach().float().cpu() if isinstance(flow, Tensor) else flow, np.float32)
    if values.ndim != 3 or values.shape[0] != 2 or values.size == 0:
        raise InputError(f"flow must have shape (2, H, W), got {values.shape}")
    return values


def check_scale(scale: float) -> float:
    """A length that flow can be measured by."""
    if not 0 < scale < np.inf:
        raise InputError(f"max_flow must be a positive number of pixels, got {scale}")
    return scale


def _known(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    return np.asarray((np.abs(values) <= LARGEST).all(0))
