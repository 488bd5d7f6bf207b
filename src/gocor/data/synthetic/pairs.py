"""Endless image pairs with exact flow, made from photos."""

import numpy as np

from ...utils.checks import check_count
from ...utils.errors import InputError
from .batch import PairBatch
from .drawing import Drawn, draw_batch, to_device
from .motion import Frame
from .objects import ObjectStore
from .photos import PhotoStore
from .presets import get_preset
from .rendering import Renderer
from .settings import Preset

MIN_SIZE = 16


class SyntheticPairs:
    """Makes pairs from photos: the query is a part of a photo, the reference the same photo under a random motion.

    A batch depends on the seed, the step and the stores only, not on earlier calls. The parameters of the whole batch
    are drawn on the CPU; those of this process are copied to the device at once; images, flow and masks are computed
    there, and no call waits for the device.

    Args:
        photos: the photos; pairs are made on their device.
        preset: name of one of `PRESETS`, or a `Preset`.
        size: `(height, width)` of the images.
        seed: another seed gives other pairs.
        objects: cut-outs, for presets with moving objects.
    """

    def __init__(
        self,
        photos: PhotoStore,
        *,
        preset: str | Preset = "static",
        size: tuple[int, int] = (256, 256),
        seed: int = 0,
        objects: ObjectStore | None = None,
    ) -> None:
        self.preset = get_preset(preset)
        moving = self.preset.objects is not None and self.preset.objects.count[1] > 0
        if moving and objects is None:
            raise InputError("the preset has moving objects: give an ObjectStore as objects=")
        if objects is not None and objects.device != photos.device:
            raise InputError(f"photos and objects must be on one device, got {photos.device} and {objects.device}")
        self.objects = objects if moving else None
        if len(size) != 2:
            raise InputError(f"size must be (height, width), got {size!r}")
        check_count("height", size[0], MIN_SIZE)
        check_count("width", size[1], MIN_SIZE)
        check_count("seed", seed)
        self.photos, self.seed, self.size = photos, seed, (size[0], size[1])
        self.device = photos.device
        self._frame = Frame(*self.size)
        self._renderer = Renderer(self.preset, self._frame, self.device)

    def batch(self, step: int, batch_size: int, *, rank: int = 0, world_size: int = 1) -> PairBatch:
        """The pairs of one training step.

        Args:
            step: number of the step; each has other pairs.
            batch_size: pairs of the step, over all processes together.
            rank: number of this process.
            world_size: number of processes; `batch_size` must be a multiple of it.

        Returns:
            `batch_size // world_size` pairs: this process's share of the pairs that a single process would get.
        """
        drawn = self.draw(step, batch_size, rank=rank, world_size=world_size)
        objects = None if self.objects is None else self.objects.pixels
        return self._renderer(self.photos.pixels(step), objects, to_device(drawn, self.device))

    def draw(self, step: int, batch_size: int, *, rank: int = 0, world_size: int = 1) -> Drawn:
        """Draw the parameters of a batch: the part of `batch` that runs on the CPU. It has the same arguments."""
        check_count("step", step)
        check_count("world_size", world_size, 1)
        check_count("rank", rank)
        check_count("batch_size", batch_size, 1)
        if rank >= world_size or batch_size % world_size:
            got = f"batch_size {batch_size}, rank {rank}, world_size {world_size}"
            raise InputError(f"batch_size must be a multiple of world_size, and rank must be smaller, got {got}")
        rng = np.random.default_rng([self.seed, step])
        drawn = draw_batch(self.preset, self.photos.at(step), self.objects, batch_size, self._frame, rng)
        share = batch_size // world_size
        return {name: array[rank * share : (rank + 1) * share] for name, array in drawn.items()}
