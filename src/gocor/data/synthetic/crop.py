"""Crops: the part of a photo that a query shows."""

import numpy as np
from numpy.typing import NDArray

from ...utils.arrays import Array
from .motion import Frame, rotation_matrix
from .photos import PhotoSet
from .settings import Crop, Motion


def draw_crops(
    crop: Crop,
    motions: tuple[Motion, ...],
    kind: NDArray[np.int64],
    photos: PhotoSet,
    chosen: NDArray[np.int64],
    frame: Frame,
    rng: np.random.Generator,
) -> Array:
    """Draw affine maps `(B, 2, 3)` from pixels of the query to pixels of the stored photo.

    Args:
        crop: ranges to draw from.
        motions: the motions of the preset.
        kind: `(B,)`, index of each pair's motion.
        photos: the photos in memory.
        chosen: `(B,)`, index of each pair's photo.
        frame: size of the query.
        rng: random numbers.
    """
    count = len(kind)
    turned = photos.turned[chosen]
    stored_height, stored_width = photos.sizes[chosen].T.astype(np.float64)
    height, width = np.where(turned, stored_width, stored_height), np.where(turned, stored_height, stored_width)
    tilt = np.deg2rad(crop.tilt) * rng.uniform(-1, 1, count)
    share, place = rng.uniform(*crop.share, count), rng.uniform(-1, 1, (2, count))
    mirror = np.where(rng.random(count) < crop.flip, -1.0, 1.0)

    # The bounding box of a w×h frame, tilted, is w|cos| + h|sin| by w|sin| + h|cos|.
    cos, sin = np.abs(np.cos(tilt)), np.abs(np.sin(tilt))
    box_x = (frame.width - 1) * cos + (frame.height - 1) * sin
    box_y = (frame.width - 1) * sin + (frame.height - 1) * cos
    scale = share * np.minimum((width - 1) / box_x, (height - 1) / box_y)  # photo pixels per query pixel
    free = np.stack([width - 1 - scale * box_x, height - 1 - scale * box_y]).clip(0) / 2
    linear = scale[:, None, None] * rotation_matrix(tilt)
    linear[:, :, 0] *= mirror[:, None]
    centre = np.stack([(width - 1) / 2, (height - 1) / 2], -1) + (place * free).T

    windows = np.array([motion.window or (0, 0) for motion in motions], np.float64)[kind]
    fixed = windows[:, 0] > 0
    scales = windows * np.stack([(width - 1) / (frame.width - 1), (height - 1) / (frame.height - 1)], -1)
    linear[fixed] = scales[fixed, :, None] * np.eye(2)
    centre[fixed] = np.stack([(width - 1) / 2, (height - 1) / 2], -1)[fixed]

    maps = np.concatenate([linear, (centre - np.einsum("bij,j->bi", linear, frame.centre))[..., None]], -1)
    return np.where(turned[:, None, None], maps[:, ::-1], maps)
