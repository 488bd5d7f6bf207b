"""Pairs at other sizes, with their ground truth, as protocols ask for."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.datasets import Pair, homography_pair
from ..ops.homography import resizing

Picture = NDArray[np.uint8]
Size = tuple[int, int]


def resize_homography_pair(pair: Pair, size: Size) -> Pair:
    """Both images of a pair at one size `(H, W)`, by area averages where they shrink; the homography goes along.

    Pixels cover areas: resizing by s takes x to `(x + ½)s − ½`.
    """
    if pair.homography is None:
        raise ValueError(f"{pair.name}: only pairs with a homography are resized by this protocol")
    scaling = [resizing(image.shape, size) for image in (pair.reference, pair.query)]
    homography = scaling[1] @ pair.homography @ np.linalg.inv(scaling[0])
    images = [_resized(image, size) for image in (pair.reference, pair.query)]
    return homography_pair(pair.name, images[0], images[1], homography, group=pair.group)


def resize_by_short_side(pair: Pair, short: int, multiple: int) -> Pair:
    """MegaDepth's protocol: each image's shorter side at `short`, both then down to a multiple, by Lanczos' filter.

    Points are multiplied by each axis' ratio, and kept if they are inside both images, borders excluded.
    """
    if pair.points is None:
        raise ValueError(f"{pair.name}: only pairs with sparse points are resized by this protocol")
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
    """Both images with black at the bottom and on the right, up to the larger height and width."""
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
    """Resize `(H, W, 3)` by Lanczos' filter of radius 3, widened where the image shrinks (so it does not alias)."""
    values = image.astype(np.float32)
    for axis in (1, 0):
        old, new = image.shape[axis], size[axis]
        if new == old:
            continue
        scale = old / new
        radius = 3 * max(scale, 1)
        centre = (np.arange(new) + 0.5) * scale
        first = np.floor(centre - radius).astype(int)
        taps = first[:, None] + np.arange(int(np.ceil(2 * radius)) + 2)  # (new, taps)
        offset = (taps + 0.5 - centre[:, None]) / max(scale, 1)
        weight = np.where(np.abs(offset) < 3, np.sinc(offset) * np.sinc(offset / 3), 0) * ((taps >= 0) & (taps < old))
        weight /= weight.sum(1, keepdims=True)
        moved = np.moveaxis(values, axis, 0)
        out = np.zeros((new, *moved.shape[1:]), np.float32)
        for tap, share in zip(np.clip(taps, 0, old - 1).T, weight.T.astype(np.float32), strict=True):
            out += share.reshape(-1, 1, 1) * moved[tap]
        values = np.moveaxis(np.clip(np.rint(out), 0, 255), 0, axis)  # both passes are rounded, as in image libraries
    return np.ascontiguousarray(values.astype(np.uint8))


def _resized(image: Picture, size: Size) -> Picture:
    import cv2

    shrinks = size[0] * size[1] < image.shape[0] * image.shape[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (size[1], size[0]), interpolation=how), np.uint8)
