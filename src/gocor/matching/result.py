"""The result of matching one pair."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..ops.warp import inside_mask, warp
from ..utils.arrays import Array, Mask, Picture
from ..utils.checks import check_count
from ..utils.errors import InputError
from ..viz.drawing import picture_of
from .pose import Pose, check_camera, estimate_pose

MIN_POINTS = {"homography": 4, "fundamental": 8, "pose": 6}  # Fewest matches that each estimate takes.


@dataclass(frozen=True, eq=False)
class MatchResult:
    """Dense matches of one pair, at the reference's resolution.

    A result is equal to itself only, and hashable. To compare two results, compare their tensors, for instance with
    `torch.equal(a.flow, b.flow)`.

    Attributes:
        reference: RGB picture `(H, W, 3)`, uint8.
        query: RGB picture `(Hq, Wq, 3)`, uint8.
        flow: `(2, H, W)` float32: reference pixel + flow = query pixel, channel 0 is x, in the query's own pixels.
        confidence: `(H, W)` float32 in [0, 1]: the probability that the flow is at most 2 pixels of the network's
            working size off, if the network learns it; else `1 / (1 + e)`, with e the forward–backward error in these
            pixels. 0 where the match is outside the query.
        occlusion: `(H, W)` bool: occlusion mask, as the network predicts it, or by the forward–backward test.
        model: name of the network.
    """

    reference: Picture = field(repr=False)
    query: Picture = field(repr=False)
    flow: Tensor = field(repr=False)
    confidence: Tensor = field(repr=False)
    occlusion: Tensor = field(repr=False)
    model: str = ""

    def matches(self, max_points: int = 5000, min_confidence: float = 0.5) -> NDArray[np.float32]:
        """The most confident matches, distributed over the image: rows x, y, x′, y′, confidence, highest first.

        The reference is divided into at most `max_points` square cells. Each contributes its most confident pixel if
        that reaches `min_confidence` and its match is inside the query.
        """
        check_count("max_points", max_points, minimum=1)
        if not 0 <= min_confidence <= 1:
            raise InputError(f"min_confidence must be between 0 and 1, got {min_confidence}")
        height, width = self.confidence.shape
        inside = inside_mask(self.flow[None], self.query.shape[:2])[0, 0].numpy()
        score = np.where(inside, self.confidence.numpy(), -1)
        side = max(1, int(np.ceil(np.sqrt(height * width / max_points))))
        rows, columns = -(-height // side), -(-width // side)
        padded = np.full((rows * side, columns * side), -1, np.float32)
        padded[:height, :width] = score
        cells = padded.reshape(rows, side, columns, side).swapaxes(1, 2).reshape(rows * columns, side * side)
        best = cells.argmax(1)
        y = np.arange(rows).repeat(columns) * side + best // side
        x = np.tile(np.arange(columns), rows) * side + best % side
        value = cells[np.arange(len(best)), best]
        order = np.argsort(-value, kind="stable")
        order = order[value[order] >= max(min_confidence, 0)][:max_points]
        x, y, value = x[order], y[order], value[order]
        dx, dy = self.flow.numpy()[:, y, x]
        return np.stack([x, y, x + dx, y + dy, value], 1).astype(np.float32)

    def warp(self) -> Picture:
        """The query warped to the reference, RGB `(H, W, 3)`, black where the match is outside the query."""
        query = torch.from_numpy(self.query).permute(2, 0, 1)[None].float()
        return picture_of(warp(query, self.flow[None])[0])

    def homography(
        self, threshold: float = 3.0, max_points: int = 5000, min_confidence: float = 0.5
    ) -> tuple[Array, Mask]:
        """Estimate the homography reference → query from the confident matches, by MAGSAC++.

        Args:
            threshold: largest error of an inlier, in query pixels.
            max_points: see `matches`.
            min_confidence: see `matches`.

        Returns:
            The 3×3 matrix, and for each row of `matches(max_points, min_confidence)` whether it is an inlier.
        """
        import cv2

        return self._estimate(
            "homography",
            lambda a, b: cv2.findHomography(a, b, cv2.USAC_MAGSAC, threshold, maxIters=10000, confidence=0.9999),
            max_points,
            min_confidence,
        )

    def fundamental(
        self, threshold: float = 1.0, max_points: int = 5000, min_confidence: float = 0.5
    ) -> tuple[Array, Mask]:
        """Estimate the fundamental matrix, x′ᵀFx = 0, from the confident matches; arguments as in `homography`."""
        import cv2

        return self._estimate(
            "fundamental",
            lambda a, b: cv2.findFundamentalMat(a, b, cv2.USAC_MAGSAC, threshold, 0.9999, 10000),
            max_points,
            min_confidence,
        )

    def pose(
        self,
        K1: ArrayLike,
        K2: ArrayLike,
        threshold: float = 1.0,
        max_points: int = 5000,
        min_confidence: float = 0.5,
    ) -> Pose:
        """Estimate the pose of the query's camera relative to the reference's, by the essential matrix with MAGSAC++.

        If the camera only rotated, the rotation is right and the direction of the translation is arbitrary.

        Args:
            K1: camera matrix of the reference, `[[fx, 0, cx], [0, fy, cy], [0, 0, 1]]` in its pixels; centres of
                pixels are at integers.
            K2: camera matrix of the query.
            threshold: largest distance of an inlier from its epipolar line, in pixels.
            max_points: see `matches`.
            min_confidence: see `matches`.

        Returns:
            `rotation` `(3, 3)` and `translation` `(3,)`, a unit vector, which map coordinates in the reference's camera
            to the query's, and `inliers` for each row of `matches(max_points, min_confidence)`.
        """
        cameras = check_camera("K1", K1), check_camera("K2", K2)
        if not threshold > 0:
            raise InputError(f"threshold must be a positive number of pixels, got {threshold}")
        points = self._enough("pose", max_points, min_confidence)
        found = estimate_pose(points[:, :2], points[:, 2:4], *cameras, threshold)
        if found is None:
            raise InputError(f"no pose fits the {len(points)} matches")
        return found

    def save(self, folder: str | os.PathLike[str], *, formats: Sequence[str] = ("flo",)) -> list[str]:
        """Write flow, pictures and matches to a folder, see `gocor.matching.save_result`; returns the paths."""
        from .files import save_result

        return [str(path) for path in save_result(self, folder, formats=formats)]

    def _estimate(
        self, what: str, estimate: Callable[..., Any], max_points: int, min_confidence: float
    ) -> tuple[Array, Mask]:
        points = self._enough(what, max_points, min_confidence)
        matrix, inliers = estimate(points[:, :2], points[:, 2:4])
        if matrix is None or matrix.shape != (3, 3):
            raise InputError(f"no {what} fits the {len(points)} matches")
        return matrix, inliers.ravel().astype(bool)

    def _enough(self, what: str, max_points: int, min_confidence: float) -> Array:
        """The matches in float64, if there are enough of them."""
        points = self.matches(max_points, min_confidence)
        if len(points) < MIN_POINTS[what]:
            raise InputError(
                f"a {what} needs {MIN_POINTS[what]} matches, there are {len(points)} with confidence ≥ {min_confidence}"
            )
        return points.astype(np.float64)
