"""Images warped by homographies."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops.homography import Matrix, depth, jacobian, project, project_map
from ...ops.warp import pixel_grid, warp
from ...utils.arrays import Array

GREY = 127.5  # Value of pixels outside the warped image.
STRIDE = 8  # The scale of a homography is measured at every eighth pixel.


def warp_perspective(image: Tensor, matrix: Matrix, size: tuple[int, int]) -> Tensor:
    """Warp an image by a homography, without aliasing.

    Args:
        image: `(1, 3, H, W)` in [0, 255].
        matrix: `(3, 3)`, pixel of the result → pixel of the image.
        size: height and width of the result.

    Returns:
        `(1, 3, *size)`, grey where the image shows nothing.
    """
    grid = pixel_grid(*size, device=image.device)
    mapping, inside = project_map(matrix, grid), visible_mask(image, matrix, size)
    halvings = round(math.log2(max(1.0, _visible_scale(image, matrix, size))))
    for _ in range(halvings):
        image = F.avg_pool2d(image, 2, ceil_mode=True, count_include_pad=False)
    mapping = (mapping + 0.5) / 2**halvings - 0.5
    return torch.where(inside, warp(image, mapping - grid, padding="border"), GREY)


def visible_mask(image: Tensor, matrix: Matrix, size: tuple[int, int]) -> Tensor:
    """Where `warp_perspective` shows the image: `(1, 1, *size)` bool."""
    grid = pixel_grid(*size, device=image.device)
    x, y = project_map(matrix, grid).split(1, 1)
    inside = (x > -0.5) & (x < image.shape[3] - 0.5) & (y > -0.5) & (y < image.shape[2] - 0.5)
    return inside & (depth(matrix, grid) > 0)


def median_scale(matrix: Matrix, points: Array) -> float:
    """Pixels of the target per pixel of the source of a homography: the median over points `(N, 2)`."""
    return float(np.median(np.sqrt(np.abs(np.linalg.det(jacobian(matrix, points))))))


def _visible_scale(image: Tensor, matrix: Matrix, size: tuple[int, int]) -> float:
    """`median_scale` over the visible pixels. It is computed on the host, so that no device has to be waited for."""
    y, x = np.mgrid[: size[0] : STRIDE, : size[1] : STRIDE]
    points = np.stack([x.ravel(), y.ravel()], 1).astype(np.float64)
    mapped = project(matrix, points)
    inside = (mapped > -0.5) & (mapped < (image.shape[3] - 0.5, image.shape[2] - 0.5))
    visible = inside.all(1) & (points @ matrix[2, :2] + matrix[2, 2] > 0)
    return median_scale(matrix, points[visible]) if visible.any() else 1.0
