"""Pairs resized or padded, with their ground truth, as protocols require."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.datasets import Pair, homography_pair
from ..ops.homography import resizing
from ..utils.arrays import Picture
from ..utils.errors import InputError

Size = tuple[int, int]


def resize_homography_pair(pair: Pair, size: Size) -> Pair:
    """Resize both images of a pair to one size `(H, W)`, by area averages where they shrink, and the homography too.

    Resizing by s moves a coordinate x to `(x + ½)s − ½`.
    """
    if pair.homography is None:
        raise InputError(f"{pair.name}: only pairs with a homography are resized by this protocol")
    scaling = [resizing(image.shape, size) for image in (pair.reference, pair.query)]
    homography = scaling[1] @ pair.homography @ np.linalg.inv(scaling[0])
    images = [_resized(image, size) for image in (pair.reference, pair.query)]
    return homography_pair(pair.name, images[0], images[1], homography, group=pair.group)


def resize_by_short_side(pair: Pair, short: int, multiple: int) -> Pair:
    """Resize each image so that its shorter side is `short`, then both sides down to a multiple (MegaDepth).

    Points are multiplied by each axis' ratio, and kept if they are inside both images, borders excluded.
    """
    if pair.points is None:
        raise InputError(f"{pair.name}: only pairs with sparse points are resized by this protocol")
    points, images = pair.points.copy(), []
    for image, columns in ((pair.reference, (0, 1)), (pair.query, (2, 3))):
        height, width = image.shape[:2]
        ratio = short / min(height, width)
        new_height, new_width = (max(multiple, round(side * ratio) // multiple * multiple) for side in (height, width))
        images.append(lanczos(image, (new_height, new_width)))
        points[:, columns] *= (new_width / width, new_height / height)
    limits = np.array([images[0].shape[1], images[0].shape[0], images[1].shape[1], images[1].shape[0]])
    inside = ((points > 0) & (points < limits - 1)).all(1)
    return replace(pair, reference=images[0], query=images[1], points=points[inside])


def pad_to_common_size(pair: Pair) -> Pair:
    """Pad both images with black at the bottom and on the right, to the larger height and width."""
    height, width = np.maximum(pair.reference.shape[:2], pair.query.shape[:2])

    def padded(array: NDArray[np.generic] | None) -> NDArray[np.generic] | None:
        if array is None:
            return None
        rest = [(0, 0)] * (array.ndim - 2)
        return np.pad(array, [(0, height - array.shape[0]), (0, width - array.shape[1]), *rest])

    maps: dict[str, Any] = {
        name: padded(getattr(pair, name)) for name in ("reference", "query", "flow", "valid", "occluded")
    }
    return replace(pair, **maps)


def lanczos(image: Picture, size: Size) -> Picture:
    """Resize `(H, W, 3)` by Pillow's Lanczos filter, which is widened where the image shrinks to avoid aliasing."""
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.LANCZOS)).copy()


def _resized(image: Picture, size: Size) -> Picture:
    import cv2

    shrinks = size[0] * size[1] < image.shape[0] * image.shape[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (size[1], size[0]), interpolation=how), np.uint8)
