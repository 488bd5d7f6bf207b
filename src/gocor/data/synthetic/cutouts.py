"""Cut-outs of objects without remains of their old background at the edges."""

import cv2
import numpy as np
from numpy.typing import NDArray

OPAQUE = 0.95  # Pixels with at least this alpha show the colour of the object alone.
EDGE_WINDOW = 9  # pixels: width of the neighbourhood whose opaque pixels give an edge its colour


def clean_cutout(rgb: NDArray[np.uint8], alpha: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Convert an object to premultiplied RGBA `(H, W, 4)` and remove its old background from the edges.

    Pixels at the edge of a mask contain some of the old background, whether the mask is hard or soft. So the mask is
    eroded by a pixel and blurred, and pixels that are not opaque take the mean colour of the opaque pixels around them.

    Args:
        rgb: `(H, W, 3)`.
        alpha: `(H, W)` in [0, 1].
    """
    shrunk = cv2.erode(alpha, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=0)
    soft = np.minimum(cv2.GaussianBlur(shrunk, (5, 5), 0.8, borderType=cv2.BORDER_CONSTANT), alpha)
    opaque = (soft >= OPAQUE).astype(np.float32)
    if not opaque.any():
        opaque = (soft >= soft.max()).astype(np.float32)
    near = cv2.blur(opaque, (EDGE_WINDOW, EDGE_WINDOW), borderType=cv2.BORDER_CONSTANT)[..., None]
    total = cv2.blur(rgb * opaque[..., None], (EDGE_WINDOW, EDGE_WINDOW), borderType=cv2.BORDER_CONSTANT)
    colours = total / np.maximum(near, 1e-6)
    colours = np.where(opaque[..., None] > 0, rgb, np.where(near > 1e-3, colours, rgb))
    rgba = np.concatenate([colours * soft[..., None], 255 * soft[..., None]], -1)
    return np.asarray(np.rint(rgba).clip(0, 255).astype(np.uint8))
