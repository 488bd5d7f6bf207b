"""Random parameters of a batch, drawn on the CPU."""

import numpy as np
from numpy.typing import NDArray

from .colour import draw_colours
from .crop import draw_crops
from .motion import Frame, draw_warps
from .moving import draw_objects
from .objects import ObjectStore
from .photos import PhotoSet
from .settings import Preset


def draw_batch(
    preset: Preset,
    photos: PhotoSet,
    objects: ObjectStore | None,
    count: int,
    frame: Frame,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.float64]]:
    """Draw all parameters of `count` pairs: arrays `(B, ...)` by name, as `Renderer` expects them."""
    chosen = rng.integers(len(photos.sizes), size=count)
    warps = draw_warps(preset.motions, count, frame, rng)
    drawn: dict[str, NDArray[np.float64]] = {
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
