"""Objects cut out of their photos, so that they can be laid over another one without a seam of their old background."""

import cv2
import numpy as np
from numpy.typing import NDArray

OPAQUE = 0.95  # alpha from which a pixel's colour is the object's alone
SPREAD = 9  # pixels, width of the neighbourhood that an edge's colours come from


def clean_cutout(rgb: NDArray[np.uint8], alpha: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Premultiplied RGBA `(H, W, 4)` of an object, its edges coloured like what is opaque next to them.

    Pixels at the edge of a mask hold some of the old background, be the mask hard or soft. The mask is shrunk by a
    pixel, softened, and what is not opaque takes the mean colour of the opaque pixels around.

    Args:
        rgb: `(H, W, 3)`.
        alpha: `(H, W)` in [0, 1].
    """
    shrunk = cv2.erode(alpha, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=0)
    soft = np.minimum(cv2.GaussianBlur(shrunk, (5, 5), 0.8, borderType=cv2.BORDER_CONSTANT), alpha)
    opaque = (soft >= OPAQUE).astype(np.float32)
    if not opaque.any():
        opaque = (soft >= soft.max()).astype(np.float32)
    near = cv2.blur(opaque, (SPREAD, SPREAD), borderType=cv2.BORDER_CONSTANT)[..., None]
    colours = cv2.blur(rgb * opaque[..., None], (SPREAD, SPREAD), borderType=cv2.BORDER_CONSTANT) / np.maximum(
        near, 1e-6
    )
    colours = np.where(opaque[..., None] > 0, rgb, np.where(near > 1e-3, colours, rgb))
    rgba = np.concatenate([colours * soft[..., None], 255 * soft[..., None]], -1)
    return np.asarray(np.rint(rgba).clip(0, 255).astype(np.uint8))
