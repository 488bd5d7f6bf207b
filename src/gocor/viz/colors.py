"""Flow as colours: the hue is the direction, the saturation is the length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..utils.arrays import Flow, Picture, known_flow
from ..utils.checks import check_count
from ..utils.errors import InputError

FlowLike = Tensor | NDArray[Any]

# The colour wheel of Middlebury (Baker et al., "A database and evaluation methodology for optical flow", IJCV 2011).
# Angles are fractions of a full turn, clockwise from "right". Ranges are wide where the eye distinguishes hues well.
WHEEL_ANGLES = np.array([0, 15, 21, 25, 36, 49, 55]) / 55
WHEEL = np.array([(1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1), (1, 0, 1), (1, 0, 0)], np.float32)
TOO_LONG = 0.75  # brightness of flow that is longer than the scale
MIN_SCALE = 0.01  # pixels: shorter flow is rounding error


def flow_to_color(flow: FlowLike, max_flow: float | None = None) -> Picture:
    """Convert flow to colours: red is right, yellow down, cyan-blue left, violet up, and white is no motion.

    Args:
        flow: `(2, H, W)`, x then y; NaN, infinity and values beyond 1e9 are unknown.
        max_flow: length in pixels that has full saturation; by default `flow_scale(flow)`. Use the same value for
            pictures to compare and for the frames of a video. Longer flow is drawn darker.

    Returns:
        RGB `(H, W, 3)`; unknown pixels are black.
    """
    values = as_flow(flow)
    scale = check_scale(flow_scale(values) if max_flow is None else max_flow)
    known = known_flow(values)
    dx, dy = np.where(known, values, 0)
    length = np.hypot(dx, dy) / np.float32(scale)
    angle = np.arctan2(dy, dx) / (2 * np.pi) % 1
    hue = np.stack([np.interp(angle, WHEEL_ANGLES, channel) for channel in WHEEL.T], -1)  # (H, W, 3)
    colour = 1 - np.minimum(length, 1)[..., None] * (1 - hue)
    colour = np.where((length > 1)[..., None], TOO_LONG * hue, colour)
    return np.rint(255 * colour * known[..., None]).astype(np.uint8)


def flow_scale(flow: FlowLike) -> float:
    """Length in pixels to scale the colours of a flow `(2, H, W)` by: its maximum, limited to ignore outliers.

    The limit is 1.25 times the 99th percentile, unless that is almost zero. Outliers would make all other flow pale.
    """
    values = as_flow(flow)
    dx, dy = values[:, known_flow(values)]
    if not dx.size:
        return 1.0
    length = np.hypot(dx, dy)
    longest, percentile = float(length.max()), float(np.percentile(length, 99))
    return max(min(longest, 1.25 * percentile) if percentile > MIN_SCALE else longest, MIN_SCALE)


def color_legend(size: int = 96) -> Picture:
    """Draw the colour wheel, `(size, size, 3)`: each point has the colour of the flow from the centre to it."""
    import cv2

    check_count("size", size, minimum=1)
    fine = 4 * size  # supersampled for a smooth edge
    axis = (np.arange(fine, dtype=np.float32) - (fine - 1) / 2) / (fine / 2)
    flow = np.stack(np.meshgrid(axis, axis))
    wheel = np.where((np.hypot(*flow) <= 1)[..., None], flow_to_color(flow, 1.0), np.uint8(255))
    return np.asarray(cv2.resize(wheel, (size, size), interpolation=cv2.INTER_AREA))


def as_flow(flow: FlowLike) -> Flow:
    """Convert flow `(2, H, W)`, a tensor or an array, to a float32 array."""
    values = np.asarray(flow.detach().float().cpu() if isinstance(flow, Tensor) else flow, np.float32)
    if values.ndim != 3 or values.shape[0] != 2 or values.size == 0:
        raise InputError(f"flow must have shape (2, H, W), got {values.shape}")
    return values


def check_scale(scale: float) -> float:
    """Return the scale, which must be positive and finite."""
    if not 0 < scale < np.inf:
        raise InputError(f"max_flow must be a positive number of pixels, got {scale}")
    return scale
