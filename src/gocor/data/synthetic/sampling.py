"""Images read at any positions, without aliasing: the image and smaller copies of it side by side in one tensor."""

import torch
import torch.nn.functional as F
from torch import Tensor

STRIDE = 8  # pixels between the positions at which the local scale is measured


class Pyramid:
    """Images `(B, C, H, W)` as float32, and halved once and more often; H and W can be halved that often.

    Layout of `canvas` `(B, C, H, W + W/2)`: the images on the left; right of them, from top to bottom, halves, quarters
    and so on. One `grid_sample` reads every point from the copy that suits the scale there.
    """

    def __init__(self, images: Tensor, *, halvings: int = 2) -> None:
        count, channels, height, width = images.shape
        self.height, self.width = height, width
        self.canvas = torch.empty((count, channels, height, width + width // 2), device=images.device)
        level = self.canvas[..., :width]
        level.copy_(images)
        self.canvas[..., width:].zero_()  # what lies between copies is read with weights of rounding: let it be finite
        top = 0
        for halving in range(1, halvings + 1):
            level = F.avg_pool2d(level, 2)
            self.canvas[..., top : top + (height >> halving), width : width + (width >> halving)] = level
            top += height >> halving

    def sample(self, x: Tensor, y: Tensor, level: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Bilinear values at pixels x, y.

        Args:
            x: `(B, h, w)`, in pixels of the original; beyond an image its border goes on.
            y: likewise.
            level: how often the copy to read is halved; broadcasts with x.
            sizes: `(B, 2, 1, 1)`, height and width of each image in the upper left corner of the original, if smaller.

        Returns:
            `(B, C, h, w)`.
        """
        scale = torch.exp2(-level)
        right = (level > 0) * float(self.width)
        below = (self.height - 2 * self.height * scale).clamp(min=0)
        height, width = (self.height, self.width) if sizes is None else (sizes[:, 0], sizes[:, 1])
        # A pixel of a copy lies amid those that it is the mean of.
        x = (x + 0.5) * scale - 0.5
        y = (y + 0.5) * scale - 0.5
        x = torch.minimum(x, width * scale - 1).clamp(min=0) + right
        y = torch.minimum(y, height * scale - 1).clamp(min=0) + below
        canvas_height, canvas_width = self.canvas.shape[-2:]
        grid = torch.stack([x * (2 / (canvas_width - 1)) - 1, y * (2 / (canvas_height - 1)) - 1], -1)
        return F.grid_sample(self.canvas, grid, mode="bilinear", padding_mode="border", align_corners=True)


def levels(x: Tensor, y: Tensor) -> Tensor:
    """Which copy to read at positions x, y: the one whose pixels are nearest in size to the steps there.

    Args:
        x: `(N, H, W)` positions in pixels of the original, on the grid of the picture that is made.
        y: likewise.

    Returns:
        `(N, H, W)` float32: 0, 1 or 2.
    """
    height, width = x.shape[-2:]
    rows, columns = min(STRIDE, height - 1), min(STRIDE, width - 1)
    u, v = x[:, ::rows, ::columns], y[:, ::rows, ::columns]
    ux, vx = (t[:, 1:, 1:] - t[:, 1:, :-1] for t in (u, v))
    uy, vy = (t[:, 1:, 1:] - t[:, :-1, 1:] for t in (u, v))
    area = (ux * vy - uy * vx).abs()[:, None] / (rows * columns)  # (N, 1, H/8, W/8): a pixel's area in the original
    area = F.interpolate(area, (height, width), mode="bilinear", align_corners=False)[:, 0]
    return (area > 2).float() + (area > 8).float()


def reflect(x: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Positions folded back into `[0, size - 1]`, as between mirrors, and whether they were inside before."""
    period = 2 * (size - 1)
    folded = torch.remainder(x, period)
    folded = torch.minimum(folded, period - folded)
    return folded, (folded - x).abs() < 1e-3
