"""Random parameters of a batch: drawn on the CPU, copied to the device as one tensor."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .colour import draw_colours
from .crop import draw_crops
from .motion import Frame, draw_warps
from .moving import draw_objects
from .objects import ObjectStore
from .photos import PhotoSet
from .settings import Preset

Drawn = dict[str, NDArray[np.float64]]


def draw_batch(
    preset: Preset,
    photos: PhotoSet,
    objects: ObjectStore | None,
    count: int,
    frame: Frame,
    rng: np.random.Generator,
) -> Drawn:
    """Draw all parameters of `count` pairs: arrays `(B, ...)` by name, as `Renderer` expects them."""
    chosen = rng.integers(len(photos.sizes), size=count)
    warps = draw_warps(preset.motions, count, frame, rng)
    drawn: Drawn = {
        "photo": chosen.astype(np.float64),
        "photo_size": photos.sizes[chosen].astype(np.float64),
        "crop": draw_crops(preset.crop, preset.motions, warps.kind, photos, chosen, frame, rng),
        "matrix": warps.matrix,
        "coefficients": warps.coefficients,
    }
    if preset.colour is not None:
        drawn |= draw_colours(preset.colour, count, rng)
    if preset.objects is not None and objects is not None:
        drawn |= draw_objects(preset.objects, objects, warps, frame, rng)
    return drawn


def to_device(drawn: Drawn, device: torch.device) -> dict[str, Tensor]:
    """Copy arrays `(B, ...)` to a device, without waiting for it: views of one float32 tensor, by name."""
    columns = [np.asarray(array, np.float32).reshape(len(array), -1) for array in drawn.values()]
    flat = torch.from_numpy(np.concatenate(columns, 1))
    flat = (flat.pin_memory() if device.type == "cuda" else flat).to(device, non_blocking=True)
    parts = flat.split([column.shape[1] for column in columns], 1)
    return {
        name: part.unflatten(1, array.shape[1:] or (1,))
        for (name, array), part in zip(drawn.items(), parts, strict=True)
    }
