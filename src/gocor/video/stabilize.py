"""Steady frames: the motion of the camera is estimated between frames and smoothed over time.

After Matsushita et al., "Full-frame video stabilization with motion inpainting", PAMI 2006, section 3: each frame is
moved by the weighted mean of its motions to the neighbouring frames. So errors do not accumulate over the clip.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..matching.result import MatchResult
from ..ops.homography import project
from ..utils.arrays import Array, Picture
from ..utils.checks import check_choice, check_count

MAX_POINTS, MIN_CONFIDENCE = 2000, 0.5  # of the matches that the motion is fitted to
MAX_ERROR = 2.0  # pixels of an inlier's error
MIN_INLIERS, MIN_SHARE = 12, 0.25  # A motion with fewer inliers, or a smaller share of them, is unknown.
MIN_ZOOM = 0.6  # Cropping keeps at least this share of the sides.
REACH = 3  # standard deviations of the smoothing, beyond which frames do not count

Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Stabilization:
    """How to steady frames.

    Attributes:
        motion: of the camera between two frames: `"similarity"` (shift, turn and zoom) or `"homography"`.
        smooth: standard deviation of the smoothing over time, in frames.
        border: `"crop"` magnifies all frames equally, so that no border shows; `"fill"` keeps their scale and fills
            borders with black.
    """

    motion: Literal["similarity", "homography"] = "similarity"
    smooth: int = 12
    border: Literal["crop", "fill"] = "crop"

    def __post_init__(self) -> None:
        check_choice("motion", self.motion, ("similarity", "homography"))
        check_choice("border", self.border, ("crop", "fill"))
        check_count("smooth", self.smooth, minimum=1)

    def as_dict(self) -> dict[str, Any]:
        """The options by name."""
        return asdict(self)


def fit_motion(result: MatchResult, motion: str) -> Matrix:
    """The motion `(3, 3)` of most confident matches, reference → query; NaN if there is none, as at a cut."""
    import cv2

    unknown = np.full((3, 3), np.nan)
    points = result.matches(MAX_POINTS, MIN_CONFIDENCE).astype(np.float64)
    if len(points) < MIN_INLIERS:
        return unknown
    starts, ends = points[:, :2], points[:, 2:4]
    if motion == "similarity":
        upper, inliers = cv2.estimateAffinePartial2D(
            starts, ends, method=cv2.RANSAC, ransacReprojThreshold=MAX_ERROR, maxIters=5000, confidence=0.999
        )
        matrix = None if upper is None else np.vstack([upper, [0, 0, 1]])
    else:
        matrix, inliers = cv2.findHomography(starts, ends, cv2.USAC_MAGSAC, MAX_ERROR, maxIters=5000, confidence=0.999)
    if matrix is None or not np.isfinite(matrix).all():
        return unknown
    if inliers.sum() < max(MIN_INLIERS, MIN_SHARE * len(points)):
        return unknown
    return np.asarray(matrix, np.float64)


def corrections(motions: Matrix, smooth: int, size: tuple[int, int]) -> Matrix:
    """Matrices `(N, 3, 3)` that move the pixels of each frame to where they are steady.

    Args:
        motions: `(N - 1, 3, 3)`, from each frame to the next; NaN where it is unknown. Frames are not smoothed across
            an unknown motion.
        smooth: standard deviation, in frames.
        size: height and width of the frames.
    """
    centred = np.array([[1, 0, -(size[1] - 1) / 2], [0, 1, -(size[0] - 1) / 2], [0, 0, 1]])
    back = np.linalg.inv(centred)
    known = np.asarray(np.isfinite(motions).all((1, 2)))
    moves = centred @ np.where(known[:, None, None], motions, np.eye(3)) @ back
    inverses = np.linalg.inv(moves)
    count = len(motions) + 1
    found = np.empty((count, 3, 3))
    for index in range(count):
        total, weights = np.eye(3), 1.0
        for step in (1, -1):
            path, place = np.eye(3), index
            for distance in range(1, REACH * smooth + 1):
                pair = place if step == 1 else place - 1
                if not 0 <= pair < len(motions) or not known[pair]:
                    break
                path = (moves[pair] if step == 1 else inverses[pair]) @ path
                path = path / path[2, 2]
                place += step
                weight = float(np.exp(-0.5 * (distance / smooth) ** 2))
                total, weights = total + weight * path, weights + weight
        found[index] = back @ (total / weights) @ centred
    return found


def crop_zoom(matrices: Matrix, size: tuple[int, int]) -> float:
    """Largest share of the sides, at most 1 and at least `MIN_ZOOM`, whose centred rectangle all frames cover.

    Args:
        matrices: `(N, 3, 3)` of `corrections`.
        size: height and width.
    """
    inverses = np.asarray(np.linalg.inv(matrices), np.float64)
    low, high = MIN_ZOOM, 1.0
    if _covered(inverses, size, high):
        return high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if _covered(inverses, size, middle) else (low, middle)
    return low


def steady(picture: Picture, matrix: Matrix, zoom: float) -> Picture:
    """Move a frame by its correction and magnify its centre by `1 / zoom`; black where the frame shows nothing."""
    import cv2

    height, width = picture.shape[:2]
    x, y = (width - 1) / 2, (height - 1) / 2
    magnify = np.array([[1 / zoom, 0, x - x / zoom], [0, 1 / zoom, y - y / zoom], [0, 0, 1]])
    warped = cv2.warpPerspective(picture, magnify @ matrix, (width, height), flags=cv2.INTER_LINEAR)
    return np.asarray(warped, np.uint8)


def _covered(inverses: Matrix, size: tuple[int, int], zoom: float) -> bool:
    """Whether all frames cover the centred rectangle. It is convex, so its corners decide."""
    half = np.subtract(size[::-1], 1) / 2
    corners: Array = half + zoom * half * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    places = project(inverses, np.broadcast_to(corners, (len(inverses), 4, 2)))
    return bool((np.abs(places - half) <= half + 1e-6).all())
