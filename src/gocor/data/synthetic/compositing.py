"""Objects laid over the images of a pair; whose motion a pixel has, and whether the query hides it."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .motion import project_grid
from .sampling import Pyramid

OWNS = 0.5  # opacity from which on a pixel has the motion of an object
DRAWN = ("object", "to_object", "object_motion", "object_level")
ROOM = 1 / 32
PURE = 0.8  # share of its owner in a pixel's colour, from which on it is used in training


@dataclass(frozen=True)
class Scene:
    """A pair with objects.

    Attributes:
        images: `(B, 2, 3, H, W)`, reference and query.
        target: `(B, 2, H, W)`, query pixels.
        owned: `(B, 1, H, W)` bool: the reference shows an object.
        hidden: `(B, 1, H, W)` bool: an object covers the target.
        pure: `(B, 1, H, W)` bool: at the pixel and at its target, the colour is nearly all its owner's.
    """

    images: Tensor
    target: Tensor
    owned: Tensor
    hidden: Tensor
    pure: Tensor


def lay_objects(images: Tensor, target: Tensor, pixels: Tensor, objects: Tensor, drawn: dict[str, Tensor]) -> Scene:
    """Composite all objects, farthest first.

    Args:
        images: backgrounds `(B, 2, 3, H, W)`, reference and query.
        target: of the background, `(B, 2, H, W)`.
        pixels: `(1, 2, H, W)`, the grid.
        objects: the store's `(N, 4, S, S)` uint8.
        drawn: `draw_objects` on the device.
    """
    owner = torch.full_like(target[:, :1], -1.0)
    share = torch.ones_like(owner)
    covers = []  # opacity in the query
    slots = drawn["object"].shape[1]
    together = _slots_at_once(target, objects, slots)
    for first in range(0, slots, together):
        seen, moved = _see_objects(pixels, objects, {name: drawn[name][:, first : first + together] for name in DRAWN})
        for slot, (view, goal) in enumerate(zip(seen.unbind(1), moved.unbind(1), strict=True), first):
            alpha = view[:, :, 3:] / 255
            images = torch.addcmul(view[:, :, :3], images, 1 - alpha)
            covers.append(alpha[:, 1])
            cover = alpha[:, 0]
            owns = cover > OWNS
            target = torch.where(owns, goal, target)
            owner = torch.where(owns, float(slot), owner)
            share = torch.where(owns, cover, share * (1 - cover))

    height, width = target.shape[-2:]
    grid = torch.stack([target[:, 0] * (2 / (width - 1)) - 1, target[:, 1] * (2 / (height - 1)) - 1], -1)
    at_target = F.grid_sample(torch.cat(covers, 1), grid, mode="bilinear", padding_mode="border", align_corners=True)
    own, clear = torch.ones_like(owner), torch.ones_like(owner)
    for slot, cover in enumerate(at_target.split(1, 1)):
        own = torch.where(owner == slot, cover, own)
        clear = torch.where(owner < slot, clear * (1 - cover), clear)
    return Scene(images, target, owner >= 0, clear < OWNS, (share >= PURE) & (own * clear >= PURE))


def _see_objects(pixels: Tensor, objects: Tensor, drawn: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """What K objects look like in both images, `(B, K, 2, 4, H, W)`, and where they go, `(B, K, 2, H, W)`."""
    height, width = pixels.shape[-2:]
    shape = drawn["object"].shape  # (B, K)
    x, y = pixels.flatten(2).unbind(1)  # (1, HW)
    pyramid = Pyramid(objects.index_select(0, drawn["object"].flatten().long()), halvings=3)
    at = project_grid(drawn["to_object"].flatten(0, 2), x, y)  # (2BK, 2, HW)
    u, v = at.view(-1, 2, 2, height, width).transpose(1, 2).reshape(-1, 2, 2 * height, width).unbind(1)
    level = drawn["object_level"].flatten(0, 1).repeat_interleave(height, 1)[..., None]  # (BK, 2H, 1)
    seen = pyramid.sample(u, v, level).view(*shape, 4, 2, height, width).transpose(2, 3)
    moved = project_grid(drawn["object_motion"].flatten(0, 1), x, y).view(*shape, 2, height, width)
    return seen, moved


def _slots_at_once(target: Tensor, objects: Tensor, slots: int) -> int:
    """How many objects of each pair to read at once: the more, the fewer operators; within `ROOM` of the GPU's memory.

    On a CPU one at a time: it gains nothing by larger tensors.
    """
    if target.device.type != "cuda":
        return 1
    room = ROOM * torch.cuda.get_device_properties(target.device).total_memory
    needed = 4 * len(target) * (6 * objects.shape[-1] ** 2 + 30 * target.shape[-2] * target.shape[-1])  # bytes a slot
    return max(1, min(slots, int(room / needed)))
