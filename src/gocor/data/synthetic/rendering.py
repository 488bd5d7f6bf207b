"""Rendering on the device: drawn parameters to images, flow and masks."""

import torch
from torch import Tensor

from ...ops.warp import pixel_grid
from .batch import PairBatch
from .colour import Photometry
from .compositing import composite
from .motion import Frame, WarpGrid
from .sampling import Pyramid, levels, reflect
from .settings import Preset


class Renderer:
    """Renders the pairs of a preset. All operators are batched, and none waits for the device."""

    def __init__(self, preset: Preset, frame: Frame, device: torch.device) -> None:
        self._frame, self._device = frame, device
        self._leaving = preset.leaving * frame.half  # pixels
        self._grid = WarpGrid(frame, device)
        self._pixels = pixel_grid(frame.height, frame.width, device=device)  # (1, 2, H, W)
        self._bends = any(motion.plate or (motion.bend and motion.bend_share) for motion in preset.motions)
        self._photometry = Photometry(preset.colour, frame, device) if preset.colour else None

    @torch.no_grad()
    def __call__(self, photos: Tensor, objects: Tensor | None, drawn: dict[str, Tensor]) -> PairBatch:
        """Render a batch.

        Args:
            photos: the pixels of a `PhotoStore`, `(N, 3, Hc, Wc)` uint8.
            objects: the pixels of an `ObjectStore`, `(N, 4, S, S)` uint8; None if the preset has no objects.
            drawn: the result of `draw_batch` on the device.
        """
        with torch.autocast(self._device.type, enabled=False):
            target = self._grid(drawn["matrix"], drawn["coefficients"] if self._bends else None)  # (B, 2, H, W)
            images, on_photo = self._backgrounds(photos, drawn, target)
            if objects is None:
                known, inside = on_photo, self._inside(target)
                valid = known & inside
                hidden = ~inside
            else:
                scene = composite(images, target, self._pixels, objects, drawn)
                images, target = scene.images, scene.target
                known, inside = on_photo | scene.on_object, self._inside(target)
                valid = known & inside & scene.unmixed & ~scene.occluded
                hidden = ~inside | scene.occluded
            occluded = known & hidden & self._inside(target, self._leaving)
            if self._photometry is not None:
                images = self._photometry(images, drawn)
        reference, query = (image.contiguous() for image in images.unbind(1))
        return PairBatch(reference, query, target - self._pixels, valid, occluded)

    def _backgrounds(self, photos: Tensor, drawn: dict[str, Tensor], target: Tensor) -> tuple[Tensor, Tensor]:
        """Reference and query `(B, 2, 3, H, W)`; mask `(B, 1, H, W)` of the pixels inside the photo, not its mirror."""
        count, _, height, width = target.shape
        size = drawn["photo_size"][..., None, None]  # (B, 2, 1, 1): height, width
        both = torch.stack([target, self._pixels.expand_as(target)], 1)  # (B, 2 images, 2, H, W), in query pixels
        crop = drawn["crop"][..., None, None, None]  # (B, 2, 3, 1, 1, 1)
        x, y = both.unbind(2)  # (B, 2 images, H, W)
        u = torch.addcmul(torch.addcmul(crop[:, 0, 2], crop[:, 0, 0], x), crop[:, 0, 1], y)
        v = torch.addcmul(torch.addcmul(crop[:, 1, 2], crop[:, 1, 0], x), crop[:, 1, 1], y)
        level = levels(u.flatten(0, 1), v.flatten(0, 1)).view(count, 2 * height, width)
        u, inside_u = reflect(u, size[:, 1:])
        v, inside_v = reflect(v, size[:, :1])
        pyramid = Pyramid(photos.index_select(0, drawn["photo"].flatten().long()))
        sampled = pyramid.sample(u.view_as(level), v.view_as(level), level, size)  # (B, 3, 2H, W)
        images = sampled.view(count, 3, 2, height, width).transpose(1, 2)
        return images, inside_u[:, :1] & inside_v[:, :1]

    def _inside(self, target: Tensor, margin: float = 0.0) -> Tensor:
        """Mask `(B, 1, H, W)` of the targets `(B, 2, H, W)` inside the query, or at most `margin` pixels outside."""
        x, y = target.split(1, 1)
        slack = margin + 1e-3  # keeps the border pixels of an identity valid in spite of rounding
        inside_x = (x >= -slack) & (x <= self._frame.width - 1 + slack)
        return inside_x & (y >= -slack) & (y <= self._frame.height - 1 + slack)
