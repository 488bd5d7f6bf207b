"""The relative pose of two cameras from matches of their images."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..utils.arrays import Array, Mask
from ..utils.errors import InputError


class Pose(NamedTuple):
    """The pose of the query's camera relative to the reference's.

    A point with the coordinates X in the reference's camera has the coordinates RX + t in the query's camera. The
    length of t is unknown.

    Attributes:
        rotation: R, `(3, 3)`.
        translation: the direction of t, a unit vector `(3,)`.
        inliers: which matches agree with the pose and are in front of both cameras, `(N,)`.
    """

    rotation: Array
    translation: Array
    inliers: Mask


def check_camera(name: str, matrix: ArrayLike) -> Array:
    """Check a camera matrix and return it as an array.

    Args:
        name: name of the argument, for messages.
        matrix: `[[fx, s, cx], [0, fy, cy], [0, 0, 1]]` in pixels.
    """
    try:
        camera = np.asarray(matrix, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a 3×3 camera matrix of numbers, got {matrix!r}") from None
    if camera.shape != (3, 3):
        raise InputError(f"{name} must be a 3×3 camera matrix, got an array of shape {camera.shape}")
    if not np.isfinite(camera).all() or camera[0, 0] <= 0 or camera[1, 1] <= 0:
        raise InputError(f"{name} must have positive, finite focal lengths, got {camera[0, 0]:g} and {camera[1, 1]:g}")
    if not np.allclose(camera[[1, 2, 2, 2], [0, 0, 1, 2]], (0, 0, 0, 1)):
        raise InputError(f"{name} must have the rows (fx, s, cx), (0, fy, cy) and (0, 0, 1), got {camera.tolist()}")
    return camera


def estimate_pose(start: Array, end: Array, first: Array, second: Array, threshold: float) -> Pose | None:
    """Estimate the relative pose from matches by the essential matrix; `None` if no pose fits.

    The essential matrix is estimated by MAGSAC++ and by LO-RANSAC. The one with more inliers in front of both cameras
    is taken.

    Args:
        start: pixels `(N, 2)` of the reference.
        end: pixels `(N, 2)` of the query.
        first: camera matrix of the reference.
        second: camera matrix of the query.
        threshold: largest distance of an inlier from its epipolar line, in pixels.
    """
    import cv2

    # Normalised image coordinates, so that both cameras are the identity.
    sides: list[Any] = [_normalise(points, camera) for points, camera in ((start, first), (end, second))]
    scaled = threshold / np.mean([first[0, 0], second[0, 0]])
    best: Pose | None = None
    find: Any = cv2.findEssentialMat
    recover: Any = cv2.recoverPose  # the signatures of both overlap
    for method in (cv2.USAC_MAGSAC, cv2.USAC_ACCURATE):  # OpenCV's MAGSAC++ alone stops at a wrong pose now and then
        cv2.setRNGSeed(0)
        essential, inliers = find(*sides, np.eye(3), method=method, prob=0.9999, threshold=scaled, maxIters=5000)
        if essential is None or essential.shape != (3, 3):
            continue
        # By default, points beyond 50 baselines are outliers.
        count, *pose, inliers, _ = recover(essential, *sides, np.eye(3), distanceThresh=1e6, mask=inliers)
        if count and (best is None or count > best.inliers.sum()):
            best = Pose(pose[0], pose[1].ravel(), inliers.ravel() > 0)
    return best


def _normalise(points: Array, camera: Array) -> Array:
    """Pixels → coordinates on the plane at distance 1 in front of the camera."""
    y = (points[:, 1] - camera[1, 2]) / camera[1, 1]
    x = (points[:, 0] - camera[0, 2] - camera[0, 1] * y) / camera[0, 0]
    return np.stack([x, y], 1)
