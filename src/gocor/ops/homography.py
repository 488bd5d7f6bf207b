"""Points through homographies, up to their horizon."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]

NEAREST = 0.02  # least depth: points that are nearer to the horizon, or beyond it, are taken to be there


def project(matrix: Matrix, points: NDArray[np.float64], nearest: float = NEAREST) -> NDArray[np.float64]:
    """Points `(..., N, 2)` through homographies `(..., 3, 3)`."""
    mapped = points @ matrix[..., :2].swapaxes(-1, -2) + matrix[..., None, :, 2]
    return np.asarray(mapped[..., :2] / np.maximum(mapped[..., 2:], nearest))


def resizing(size: Sequence[int], to: Sequence[int]) -> Matrix:
    """Pixels of an image of a (height, width) → pixels of the same image at another."""
    x, y = to[1] / size[1], to[0] / size[0]
    return np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1]], dtype=np.float64)


def project_map(matrix: Matrix, points: Tensor) -> Tensor:
    """Points `(B, 2, H, W)` through one homography; beyond its horizon they are far away."""
    x, y = points.split(1, 1)
    rows = [float(row[0]) * x + float(row[1]) * y + float(row[2]) for row in matrix[:2]]
    return torch.cat(rows, 1) / depth(matrix, points).clamp(min=NEAREST)


def depth(matrix: Matrix, points: Tensor) -> Tensor:
    """Positive on this side of the horizon: `(B, 1, H, W)`."""
    x, y = points.split(1, 1)
    return float(matrix[2, 0]) * x + float(matrix[2, 1]) * y + float(matrix[2, 2])
