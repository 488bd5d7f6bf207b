"""Compositing: objects in front of both images of a pair, the flow of each pixel, and its occlusion."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .motion import project_grid
from .sampling import Pyramid

COVERED = 0.5  # Above this opacity of an object, a pixel moves with it, and what lies behind is occluded.
UNMIXED = 0.8  # least share of one surface in the colour of a pixel that is used in training
MEMORY_SHARE = 1 / 32  # share of the GPU's memory for objects that are sampled at once
DRAWN = ("object", "to_object", "object_motion", "object_level")


@dataclass(frozen=True)
class Scene:
    """Pairs with objects.

    Attributes:
        images: `(B, 2, 3, H, W)`, reference and query.
        target: `(B, 2, H, W)`, positions of the reference's pixels in the query.
        on_object: `(B, 1, H, W)` bool: the reference shows an object.
        occluded: `(B, 1, H, W)` bool: a nearer object covers the target.
        unmixed: `(B, 1, H, W)` bool: the colours of the pixel and of its target come from one surface (almost) alone.
    """

    images: Tensor
    target: Tensor
    on_object: Tensor
    occluded: Tensor
    unmixed: Tensor


def composite(images: Tensor, target: Tensor, pixels: Tensor, objects: Tensor, drawn: dict[str, Tensor]) -> Scene:
    """Composite all objects over the background, farthest first.

    Args:
        images: backgrounds `(B, 2, 3, H, W)`, reference and query.
        target: `(B, 2, H, W)`, positions of the background's pixels in the query.
        pixels: `(1, 2, H, W)`, the pixel grid.
        objects: the pixels of an `ObjectStore`, `(N, 4, S, S)` uint8.
        drawn: the result of `draw_objects` on the device.
    """
    owner = torch.full_like(target[:, :1], -1.0)  # number of the object that a pixel shows, -1 for the background
    share = torch.ones_like(owner)  # of the owner in the colour of its pixel
    query_alphas = []
    slots = drawn["object"].shape[1]
    at_once = _slots_at_once(target, objects, slots)
    for first in range(0, slots, at_once):
        chunk = {name: drawn[name][:, first : first + at_once] for name in DRAWN}
        views, targets = _sample_objects(pixels, objects, chunk)
        for slot, (view, object_target) in enumerate(zip(views.unbind(1), targets.unbind(1), strict=True), first):
            alpha = view[:, :, 3:] / 255
            images = torch.addcmul(view[:, :, :3], images, 1 - alpha)
            query_alphas.append(alpha[:, 1])
            opacity = alpha[:, 0]
            covered = opacity > COVERED
            target = torch.where(covered, object_target, target)
            owner = torch.where(covered, float(slot), owner)
            share = torch.where(covered, opacity, share * (1 - opacity))

    height, width = target.shape[-2:]
    grid = torch.stack([target[:, 0] * (2 / (width - 1)) - 1, target[:, 1] * (2 / (height - 1)) - 1], -1)
    at_target = F.grid_sample(
        torch.cat(query_alphas, 1), grid, mode="bilinear", padding_mode="border", align_corners=True
    )
    own, visibility = torch.ones_like(owner), torch.ones_like(owner)
    for slot, opacity in enumerate(at_target.split(1, 1)):
        own = torch.where(owner == slot, opacity, own)
        visibility = torch.where(owner < slot, visibility * (1 - opacity), visibility)
    unmixed = (share >= UNMIXED) & (own * visibility >= UNMIXED)
    return Scene(images, target, owner >= 0, visibility < COVERED, unmixed)


def _sample_objects(pixels: Tensor, objects: Tensor, drawn: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """K objects as seen in both images, `(B, K, 2, 4, H, W)`, and the targets of their pixels, `(B, K, 2, H, W)`."""
    height, width = pixels.shape[-2:]
    shape = drawn["object"].shape  # (B, K)
    x, y = pixels.flatten(2).unbind(1)  # (1, HW)
    pyramid = Pyramid(objects.index_select(0, drawn["object"].flatten().long()), halvings=3)
    at = project_grid(drawn["to_object"].flatten(0, 2), x, y)  # (2BK, 2, HW)
    u, v = at.view(-1, 2, 2, height, width).transpose(1, 2).reshape(-1, 2, 2 * height, width).unbind(1)
    level = drawn["object_level"].flatten(0, 1).repeat_interleave(height, 1)[..., None]  # (BK, 2H, 1)
    views = pyramid.sample(u, v, level).view(*shape, 4, 2, height, width).transpose(2, 3)
    targets = project_grid(drawn["object_motion"].flatten(0, 1), x, y).view(*shape, 2, height, width)
    return views, targets


def _slots_at_once(target: Tensor, objects: Tensor, slots: int) -> int:
    """How many objects of each pair to sample at once, within `MEMORY_SHARE` of the GPU's memory.

    More at once mean fewer kernel launches. A CPU gains nothing from larger tensors and samples one at a time.
    """
    if target.device.type != "cuda":
        return 1
    memory = MEMORY_SHARE * torch.cuda.get_device_properties(target.device).total_memory
    per_slot = 4 * len(target) * (6 * objects.shape[-1] ** 2 + 30 * target.shape[-2] * target.shape[-1])  # bytes
    return max(1, min(slots, int(memory / per_slot)))
