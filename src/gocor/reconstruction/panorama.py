"""Panoramas: pictures of a flat scene, or of a camera that only rotates, warped into one."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import cv2
import numpy as np

from ..matching.result import MatchResult
from ..ops.homography import Matrix, project
from ..utils.arrays import Array, Mask, Picture
from ..utils.checks import check_count
from ..utils.errors import InputError

MIN_INLIERS = 20  # matches that agree with a homography
MIN_INLIER_SHARE = 0.3
MAX_AREA_RATIO = 10.0  # largest ratio of the areas of a picture before and after it is warped to its neighbour
MAX_EXCESS = 20.0  # area of the panorama over that of all pictures
BANDS = 5  # frequency bands of the blending
STEADY = 0.01  # weight that keeps gains near 1 where overlaps do not determine them


class Layer(NamedTuple):
    """A picture warped to the panorama, `(H, W, 3)`, and where it is."""

    picture: Picture
    mask: Mask


def neighbour_homography(result: MatchResult, names: tuple[str, str]) -> Matrix:
    """The homography from one picture to the next; an error if the two do not connect, or not by a plausible one.

    Args:
        result: matches of the two pictures.
        names: names of both pictures, for messages.
    """
    pair = f"{names[0]} and {names[1]}"
    try:
        matrix, inliers = result.homography()
    except InputError as error:
        raise InputError(f"{pair} do not connect: {error}") from None
    if inliers.sum() < MIN_INLIERS or inliers.mean() < MIN_INLIER_SHARE:
        raise InputError(
            f"{pair} do not connect: a homography explains {inliers.sum()} of {len(inliers)} matches; "
            "a panorama needs a flat scene, or a camera that only rotates"
        )
    corners = _corners(result.reference)
    warped = project(matrix, corners)
    ratio = _area(warped) / _area(corners)  # negative if the picture is mirrored
    depths = corners @ matrix[2, :2] + matrix[2, 2]
    if depths.min() <= 0 or not 1 / MAX_AREA_RATIO < ratio < MAX_AREA_RATIO:
        raise InputError(f"the homography between {pair} is not plausible: it folds or rescales the picture")
    return np.asarray(matrix / matrix[2, 2])


def chain(homographies: Sequence[Matrix]) -> list[Matrix]:
    """Homographies from each picture to the middle one, of those from each picture to the next."""
    middle = (len(homographies) + 1) // 2
    found = [np.eye(3) for _ in range(len(homographies) + 1)]
    for i in range(middle - 1, -1, -1):
        found[i] = found[i + 1] @ homographies[i]
    for i in range(middle, len(homographies)):
        found[i + 1] = found[i] @ np.linalg.inv(homographies[i])
    return found


def stitch(pictures: Sequence[Picture], matrices: Sequence[Matrix], *, max_size: int = 8192) -> Picture:
    """Warp pictures by homographies to one plane, compensate their exposure, and blend them.

    Args:
        pictures: RGB `(H, W, 3)`.
        matrices: homographies from each picture to a common plane.
        max_size: longer side of the panorama, at most; larger ones are shrunk.

    Returns:
        RGB, black where no picture is.
    """
    check_count("max_size", max_size, minimum=16)
    corners = [_corners(picture) for picture in pictures]
    if min((c @ m[2, :2] + m[2, 2]).min() for c, m in zip(corners, matrices, strict=True)) <= 0:
        raise InputError("the pictures span too wide an angle for one plane: leave some out")
    ends = [project(m, c, 1e-6) for c, m in zip(corners, matrices, strict=True)]
    low, high = np.floor(np.min(ends, (0, 1))), np.ceil(np.max(ends, (0, 1)))
    width, height = high - low + 1
    if width * height > MAX_EXCESS * sum(picture.shape[0] * picture.shape[1] for picture in pictures):
        raise InputError(
            f"the panorama would have {width:.0f}×{height:.0f} pixels: the pictures span too wide an angle"
        )
    scale = min(1.0, max_size / max(width, height))
    size = max(1, int(scale * width)), max(1, int(scale * height))
    move = np.array([[scale, 0, -scale * low[0]], [0, scale, -scale * low[1]], [0, 0, 1]])
    layers = [_warp(picture, move @ matrix, size) for picture, matrix in zip(pictures, matrices, strict=True)]
    return _blend(layers, _gains(layers))


def _corners(picture: Picture) -> Array:
    height, width = picture.shape[:2]
    return np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)


def _area(corners: Array) -> float:
    """Area of a quadrangle, negative if its corners run the other way round."""
    x, y = corners.T
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2)


def _warp(picture: Picture, matrix: Matrix, size: tuple[int, int]) -> Layer:
    warped = cv2.warpPerspective(picture, matrix, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    mask = cv2.warpPerspective(np.full(picture.shape[:2], 255, np.uint8), matrix, size, flags=cv2.INTER_NEAREST)
    return Layer(np.asarray(warped, np.uint8), mask > 0)


def _gains(layers: Sequence[Layer]) -> Array:
    """Factors `(N, 3)` on the colours of each picture that make them equal where pictures overlap (least squares)."""
    count = len(layers)
    rows, values = [STEADY * np.eye(count)], [np.zeros((count, 3))]
    for i, j in combinations(range(count), 2):
        common = layers[i].mask & layers[j].mask
        if common.any():
            row = np.zeros((1, count))
            row[0, [i, j]] = 1, -1
            means = [np.log(layer.picture[common].mean(0) + 1) for layer in (layers[i], layers[j])]
            weight = np.sqrt(common.mean())
            rows.append(weight * row)
            values.append(weight * (means[1] - means[0])[None])
    logs = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0]
    return np.asarray(np.exp(logs))


def _blend(layers: Sequence[Layer], gains: Array) -> Picture:
    """Multi-band blending. Each pixel belongs to the picture whose border is farthest."""
    inside = [cv2.distanceTransform(np.pad(layer.mask.astype(np.uint8), 1), cv2.DIST_L2, 3) for layer in layers]
    owner = np.argmax([distance[1:-1, 1:-1] for distance in inside], 0)
    height, width = layers[0].mask.shape
    blender: Any = cv2.detail.MultiBandBlender()
    blender.setNumBands(BANDS)
    blender.prepare((0, 0, width, height))
    for number, (layer, gain) in enumerate(zip(layers, gains, strict=True)):
        colours = np.clip(np.rint(layer.picture * gain), 0, 255).astype(np.int16)
        blender.feed(colours, ((owner == number) & layer.mask).astype(np.uint8) * 255, (0, 0))
    blended, _ = blender.blend(None, None)
    covered = np.any([layer.mask for layer in layers], 0)
    return np.where(covered[..., None], np.clip(blended, 0, 255), 0).astype(np.uint8)
