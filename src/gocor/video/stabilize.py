"""Steady frames: the motion of the camera is estimated between frames and smoothed over time.

After Matsushita et al., "Full-frame video stabilization with motion inpainting", PAMI 2006, section 3: each frame is
moved by the weighted mean of its motions to the neighbouring frames. So errors do not accumulate over the clip.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from ..matching.result import MatchResult
from ..ops.homography import Matrix, project
from ..utils.arrays import Array, Picture
from ..utils.checks import check_choice, check_count
from ..utils.errors import InputError

MAX_POINTS, MIN_CONFIDENCE = 2000, 0.5  # number and least confidence of the matches that the motion is fitted to
MAX_ERROR = 2.0  # pixels of an inlier's error
MIN_INLIERS, MIN_SHARE = 12, 0.25  # A motion with fewer inliers, or a smaller share of them, is unknown.
MIN_ZOOM = 0.6  # Cropping keeps at least this share of the sides.
MAX_SMOOTH = 10_000  # frames: minutes of video, where the mean over all frames is as smooth
REACH = 3  # standard deviations of the smoothing, beyond which frames do not count


@dataclass(frozen=True, kw_only=True)
class Stabilization:
    """How to steady frames.

    Attributes:
        motion: model of the camera's motion between two frames: `"similarity"` (shift, turn and zoom) or
            `"homography"`.
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
        if self.smooth > MAX_SMOOTH:
            raise InputError(f"smooth must be at most {MAX_SMOOTH:,} frames, got {self.smooth}")

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
    starts, ends = (np.ascontiguousarray(points[:, i : i + 2]) for i in (0, 2))
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

    Beyond its ends, the clip continues with its motions mirrored in time, so that a steady pan stays steady. With the
    later frames alone, the mean would move the first frames far away.

    Args:
        motions: `(N - 1, 3, 3)`, from each frame to the next; NaN where it is unknown. An unknown motion ends a part of
            the clip, which is smoothed on its own.
        smooth: standard deviation, in frames.
        size: height and width of the frames.
    """
    centred = np.array([[1, 0, -(size[1] - 1) / 2], [0, 1, -(size[0] - 1) / 2], [0, 0, 1]])
    back = np.linalg.inv(centred)
    unknown = np.flatnonzero(~np.isfinite(motions).all((1, 2)))
    found = np.tile(np.eye(3), (len(motions) + 1, 1, 1))
    for first, last in zip([0, *(unknown + 1)], [*unknown, len(motions)], strict=True):  # frames of a part
        if last > first:
            means = _mean_motions(centred @ motions[first:last] @ back, smooth)
            found[first : last + 1] = back @ means @ centred
    return found


def _mean_motions(moves: Matrix, smooth: int) -> Matrix:
    """Weighted mean `(n + 1, 3, 3)` of the motions from each frame to its neighbours, from `n` motions to the next."""
    reach, frames = REACH * smooth, np.arange(len(moves) + 1)
    pairs = np.pad(np.arange(len(moves)), reach, mode="symmetric")
    inverses = np.linalg.inv(moves)
    later = earlier = total = np.tile(np.eye(3), (len(frames), 1, 1))
    weights = 1.0
    for distance in range(1, reach + 1):
        later = _normalised(moves[pairs[reach + frames + distance - 1]] @ later)
        earlier = _normalised(inverses[pairs[reach + frames - distance]] @ earlier)
        weight = float(np.exp(-0.5 * (distance / smooth) ** 2))
        total, weights = total + weight * (later + earlier), weights + 2 * weight
    return np.asarray(total / weights, np.float64)


def _normalised(matrices: Matrix) -> Matrix:
    return matrices / matrices[:, 2:, 2:]


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


def magnified(matrices: Matrix, zoom: float, size: tuple[int, int]) -> Matrix:
    """Matrices `(N, 3, 3)` that magnify the centre of frames by `1 / zoom` after their correction."""
    y, x = ((side - 1) / 2 for side in size)
    return np.array([[1 / zoom, 0, x - x / zoom], [0, 1 / zoom, y - y / zoom], [0, 0, 1]]) @ matrices


def move(picture: Picture, matrix: Matrix) -> Picture:
    """Move the pixels of a frame by a matrix `(3, 3)`; black where the frame shows nothing."""
    import cv2

    size = picture.shape[1], picture.shape[0]
    return np.asarray(cv2.warpPerspective(picture, matrix, size, flags=cv2.INTER_LINEAR), np.uint8)


def _covered(inverses: Matrix, size: tuple[int, int], zoom: float) -> bool:
    """Whether all frames cover the centred rectangle. It is convex, so its corners decide."""
    half = np.subtract(size[::-1], 1) / 2
    corners: Array = half + zoom * half * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    places = project(inverses, np.broadcast_to(corners, (len(inverses), 4, 2)))
    return bool((np.abs(places - half) <= half + 1e-6).all())
