"""Basis functions of non-rigid motion: a thin-plate spline and a cubic B-spline."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PLATE = 3  # control points of the thin-plate spline along a side
SPLINE = 7  # coefficients of the B-spline along a side; the outermost lie one cell outside of the image
COEFFICIENTS = PLATE**2 + SPLINE**2
TF32_MASK = -(1 << 13)  # selects the bits of a float32 number that TF32 keeps


def basis_at(points: NDArray[np.float64], extent: tuple[float, float]) -> NDArray[np.float64]:
    """Values of all basis functions at points; a non-rigid motion is their weighted sum.

    Args:
        points: `(..., 2)`, x and y; the image is `[-ex, ex] × [-ey, ey]`.
        extent: `(ex, ey)`.

    Returns:
        `(..., COEFFICIENTS)`, row by row. First come the functions of the thin-plate spline, each 1 at one control
        point and 0 at all others; then the products of cubic B-splines.
    """
    return np.concatenate([_plate(points, extent), _spline(points, extent)], -1)


def split_tf32(values: Tensor) -> tuple[Tensor, Tensor]:
    """Split float32 values into a sum of two tensors: TF32 holds the first exactly and the second almost."""
    high = (values.view(torch.int32) & TF32_MASK).view(torch.float32)
    return high, values - high


def _plate(points: NDArray[np.float64], extent: tuple[float, float]) -> NDArray[np.float64]:
    """F. L. Bookstein, "Principal warps", PAMI 1989: `Σ wᵢ U(|p - cᵢ|) + affine`, `U(d) = d² log d²`, interpolating."""
    ys, xs = np.meshgrid(np.linspace(-1, 1, PLATE), np.linspace(-1, 1, PLATE), indexing="ij")
    controls = np.stack([xs.ravel() * extent[0], ys.ravel() * extent[1]], -1)
    count = len(controls)
    system = np.zeros((count + 3, count + 3))
    system[:count] = _plate_terms(controls, controls)
    system[count:, :count] = system[:count, count:].T
    return _plate_terms(points, controls) @ np.linalg.inv(system)[:, :count]


def _plate_terms(points: NDArray[np.float64], controls: NDArray[np.float64]) -> NDArray[np.float64]:
    square = ((points[..., None, :] - controls) ** 2).sum(-1)
    radial = square * np.log(np.where(square > 0, square, 1))
    return np.concatenate([radial, np.ones((*points.shape[:-1], 1)), points], -1)


def _spline(points: NDArray[np.float64], extent: tuple[float, float]) -> NDArray[np.float64]:
    cells = SPLINE - 3
    position = (points / np.asarray(extent) + 1) * (cells / 2) + 1  # coefficient i lies at position i
    x, y = (_cubic(position[..., axis, None] - np.arange(SPLINE)) for axis in (0, 1))
    return (y[..., :, None] * x[..., None, :]).reshape(*points.shape[:-1], SPLINE**2)


def _cubic(t: NDArray[np.float64]) -> NDArray[np.float64]:
    t = np.abs(t)
    return np.where(t < 1, 2 / 3 - t**2 + t**3 / 2, np.clip(2 - t, 0, None) ** 3 / 6)
