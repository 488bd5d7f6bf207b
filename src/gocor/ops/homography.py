"""Homographies of points and of maps of points, with a bound on the depth of points near the horizon."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]

NEAREST = 0.02  # smallest depth; points nearer to the horizon, or beyond it, are projected as if at this depth


def project(matrix: Matrix, points: NDArray[np.float64], nearest: float = NEAREST) -> NDArray[np.float64]:
    """Project points `(..., N, 2)` by homographies `(..., 3, 3)`."""
    mapped = points @ matrix[..., :2].swapaxes(-1, -2) + matrix[..., None, :, 2]
    return np.asarray(mapped[..., :2] / np.maximum(mapped[..., 2:], nearest))


def jacobian(matrix: Matrix, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Derivatives `(N, 2, 2)` of a homography at points `(N, 2)`: `(A - p' cᵀ) / depth`, c the last row's x and y."""
    depths = np.maximum(points @ matrix[2, :2] + matrix[2, 2], NEAREST)
    slopes = matrix[:2, :2] - project(matrix, points)[:, :, None] * matrix[2, :2]
    return np.asarray(slopes / depths[:, None, None])


def resizing(size: Sequence[int], to: Sequence[int]) -> Matrix:
    """Homography from the pixels of an image of one (height, width) to those of the same image at another."""
    x, y = to[1] / size[1], to[0] / size[0]
    return np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1]], dtype=np.float64)


def project_map(matrix: Matrix, points: Tensor) -> Tensor:
    """Project points `(B, 2, H, W)` by one homography `(3, 3)`, or by one a sample, `(B, 3, 3)`.

    Points beyond the horizon are projected far away, not to infinity.
    """
    x, y = points.split(1, 1)
    rows = [row[0] * x + row[1] * y + row[2] for row in _coefficients(matrix, points)[:2]]
    return torch.cat(rows, 1) / depth(matrix, points).clamp(min=NEAREST)


def depth(matrix: Matrix, points: Tensor) -> Tensor:
    """Depth `(B, 1, H, W)` of points under the homographies of `project_map`: positive before the horizon."""
    x, y = points.split(1, 1)
    row = _coefficients(matrix, points)[2]
    return row[0] * x + row[1] * y + row[2]


def _coefficients(matrix: Matrix, points: Tensor) -> list[Any]:
    """Rows of a matrix: numbers for one homography, tensors `(B, 1, 1, 1)` on the points' device for several."""
    if matrix.ndim == 2:
        return matrix.tolist()
    entries = torch.from_numpy(matrix).to(points)[..., None, None, None]  # (B, 3, 3, 1, 1, 1)
    return [row.unbind(1) for row in entries.unbind(1)]
