"""Errors of homographies and relative poses estimated from a flow, and the area under their cumulative curve."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.datasets import Cameras, Pair
from ..ops.homography import project
from ..ops.sampling import is_inside
from ..utils.arrays import Array
from ..utils.errors import InputError

MATCHES = 2000  # Approximate number of matches taken from a flow.
HOMOGRAPHY_THRESHOLDS = (3.0, 5.0, 10.0)  # Mean errors of the corners, in pixels.
POSE_THRESHOLDS = (5.0, 10.0, 20.0)  # Errors of the relative pose, in degrees.


def auc(errors: Sequence[float] | Array, threshold: float) -> float:
    """Area under the cumulative curve of errors up to a threshold, divided by the threshold.

    The curve connects (0, 0) and the points (eᵢ, i/n) of the sorted errors. Errors that are not finite exceed any
    threshold.
    """
    if not threshold > 0:
        raise InputError(f"threshold must be positive, got {threshold}")
    values = np.sort(np.asarray(errors, np.float64))
    if not values.size:
        raise InputError("an area under the curve needs at least one error")
    share = np.arange(1, values.size + 1) / values.size
    within = values <= threshold  # False for NaN.
    x = np.concatenate([[0.0], values[within], [threshold]])
    y = np.concatenate([[0.0], share[within], share[within][-1:] if within.any() else [0.0]])
    return float(((x[1:] - x[:-1]) * (y[1:] + y[:-1]) / 2).sum() / threshold)


def corner_error(estimate: NDArray[Any] | None, truth: Array, size: Sequence[int]) -> float:
    """Mean distance in pixels between the projections of an image's corners; infinite without an estimate."""
    if estimate is None:
        return float("inf")
    height, width = size
    corners = np.array([[0, 0], [width - 1, 0], [0, height - 1], [width - 1, height - 1]], np.float64)
    first, second = (project(np.asarray(matrix) / matrix[2, 2], corners) for matrix in (estimate, truth))
    return float(np.linalg.norm(first - second, axis=1).mean())


def pose_error(rotation: NDArray[Any] | None, translation: NDArray[Any] | None, cameras: Cameras) -> float:
    """The larger of the angles between the rotations and between the translations, in degrees; 180 without a pose.

    The sign of a translation is not known, so the latter angle is at most 90.
    """
    if rotation is None or translation is None:
        return 180.0
    cosine = (np.trace(rotation.T @ cameras.rotation) - 1) / 2
    turn = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    truth, estimate = cameras.translation.ravel(), np.asarray(translation).ravel()
    scale = np.linalg.norm(truth) * np.linalg.norm(estimate)
    angle = np.degrees(np.arccos(np.clip(truth @ estimate / max(scale, 1e-12), -1, 1)))
    return float(max(turn, min(angle, 180 - angle)))


def grid_matches(flow: NDArray[Any], query_size: Sequence[int]) -> Array:
    """Matches x, y, x′, y′ of a flow `(H, W, 2)` on a regular grid, without those that leave the query."""
    height, width = flow.shape[:2]
    step = max(1, int(np.sqrt(height * width / MATCHES)))
    y, x = (axis.ravel() for axis in np.mgrid[step // 2 : height : step, step // 2 : width : step])
    end = np.stack([x, y], 1) + flow[y, x].astype(np.float64)
    return np.column_stack([x, y, end])[is_inside(end, query_size)].astype(np.float64)


def homography_error(pair: Pair, flow: NDArray[Any]) -> float:
    """`corner_error` of the homography that MAGSAC++ estimates from a flow."""
    import cv2

    assert pair.homography is not None
    matches = grid_matches(flow, pair.query.shape[:2])
    if len(matches) < 4:
        return float("inf")
    cv2.setRNGSeed(0)
    found, _ = cv2.findHomography(
        matches[:, :2], matches[:, 2:], cv2.USAC_MAGSAC, 3.0, maxIters=5000, confidence=0.9999
    )
    return corner_error(found, pair.homography, pair.reference.shape[:2])


def relative_pose_error(pair: Pair, flow: NDArray[Any]) -> float:
    """`pose_error` of the relative pose that MAGSAC++ estimates from a flow."""
    import cv2

    assert pair.cameras is not None
    matches = grid_matches(flow, pair.query.shape[:2])
    if len(matches) < 8:
        return 180.0
    sides = ((matches[:, :2], pair.cameras.reference), (matches[:, 2:], pair.cameras.query))
    # Normalised image coordinates, so that both cameras are the identity.
    start, end = ((points - matrix[:2, 2]) / (matrix[0, 0], matrix[1, 1]) for points, matrix in sides)
    focal = np.mean([pair.cameras.reference[0, 0], pair.cameras.query[0, 0]])
    cv2.setRNGSeed(0)
    essential, inliers = cv2.findEssentialMat(
        start, end, np.eye(3), method=cv2.USAC_MAGSAC, prob=0.9999, threshold=1.0 / focal
    )
    if essential is None or essential.shape != (3, 3):
        return 180.0
    _, rotation, translation, _ = cv2.recoverPose(essential, start, end, np.eye(3), mask=inliers)
    return pose_error(rotation, translation, pair.cameras)
