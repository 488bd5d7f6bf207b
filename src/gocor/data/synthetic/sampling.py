"""Image pyramids that are sampled at any positions without aliasing, all levels in one tensor."""

import torch
import torch.nn.functional as F
from torch import Tensor

STRIDE = 8  # pixels between the positions at which the local scale is measured


class Pyramid:
    """Images `(B, C, H, W)` as float32 and their downsampled copies; H and W must be divisible by 2^`halvings`.

    `canvas` `(B, C, H, W + W/2)` holds the images on the left and, to the right of them from top to bottom, the copies
    at half the size, at a quarter, and so on. One `grid_sample` reads each point from its own level.
    """

    def __init__(self, images: Tensor, *, halvings: int = 2) -> None:
        count, channels, height, width = images.shape
        self.height, self.width = height, width
        self.canvas = torch.empty((count, channels, height, width + width // 2), device=images.device)
        level = self.canvas[..., :width]
        level.copy_(images)
        # Points on the border of a copy may read beyond it, with weights of rounding error; NaN must not be there.
        self.canvas[..., width:].zero_()
        top = 0
        for halving in range(1, halvings + 1):
            level = F.avg_pool2d(level, 2)
            self.canvas[..., top : top + (height >> halving), width : width + (width >> halving)] = level
            top += height >> halving

    def sample(self, x: Tensor, y: Tensor, level: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Sample with bilinear interpolation; borders are replicated.

        Args:
            x: `(B, h, w)`, in pixels of the original images.
            y: `(B, h, w)`.
            level: level to read from, 0 for the original; broadcasts with x.
            sizes: `(B, 2, 1, 1)`, height and width of each image if it only fills the upper left corner.

        Returns:
            Values `(B, C, h, w)`.
        """
        scale = torch.exp2(-level)
        right = (level > 0) * float(self.width)
        below = (self.height - 2 * self.height * scale).clamp(min=0)
        height, width = (self.height, self.width) if sizes is None else (sizes[:, 0], sizes[:, 1])
        # A pixel of a copy lies at the centre of the pixels that it is the mean of.
        x = (x + 0.5) * scale - 0.5
        y = (y + 0.5) * scale - 0.5
        x = torch.minimum(x, width * scale - 1).clamp(min=0) + right
        y = torch.minimum(y, height * scale - 1).clamp(min=0) + below
        canvas_height, canvas_width = self.canvas.shape[-2:]
        grid = torch.stack([x * (2 / (canvas_width - 1)) - 1, y * (2 / (canvas_height - 1)) - 1], -1)
        return F.grid_sample(self.canvas, grid, mode="bilinear", padding_mode="border", align_corners=True)


def levels(x: Tensor, y: Tensor) -> Tensor:
    """Choose the pyramid level for each position, by the area between neighbouring positions.

    Args:
        x: `(N, H, W)`, positions in pixels of the original image, for each pixel of the new image.
        y: `(N, H, W)`.

    Returns:
        Levels `(N, H, W)` as float32: 0, 1 or 2.
    """
    height, width = x.shape[-2:]
    rows, columns = min(STRIDE, height - 1), min(STRIDE, width - 1)
    u, v = x[:, ::rows, ::columns], y[:, ::rows, ::columns]
    ux, vx = (t[:, 1:, 1:] - t[:, 1:, :-1] for t in (u, v))
    uy, vy = (t[:, 1:, 1:] - t[:, :-1, 1:] for t in (u, v))
    area = (ux * vy - uy * vx).abs()[:, None] / (rows * columns)  # (N, 1, H/8, W/8), in pixels of the original
    area = F.interpolate(area, (height, width), mode="bilinear", align_corners=False)[:, 0]
    return (area > 2).float() + (area > 8).float()


def reflect(x: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Reflect positions at the borders into `[0, size - 1]`; returns them, and which were inside before."""
    period = 2 * (size - 1)
    folded = torch.remainder(x, period)
    folded = torch.minimum(folded, period - folded)
    return folded, (folded - x).abs() < 1e-3
