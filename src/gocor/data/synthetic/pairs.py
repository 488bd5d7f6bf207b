"""Endless image pairs with exact flow, made of photos."""

import queue
import threading
from collections.abc import Iterator

import numpy as np

from ...utils.checks import check_count
from ...utils.errors import InputError
from .batch import PairBatch
from .drawing import draw_batch
from .motion import Frame
from .objects import ObjectStore
from .parameters import Parameters
from .photos import PhotoStore
from .presets import get_preset
from .rendering import Renderer
from .settings import Preset

MIN_SIZE = 16


class SyntheticPairs:
    """Pairs from photos: the query is a part of a photo, the reference the photo seen through a random motion.

    `batch` is a pure function of the seed, the step and the stores, whatever was called before: parameters of the whole
    batch are drawn on the CPU, those of one rank's share are sent to the store's device in one copy, and images, flow
    and masks are computed there without waiting for the device.

    Args:
        photos: the photos, and the device.
        preset: one of `PRESETS`, or a `Preset`.
        size: `(height, width)` of the images.
        seed: other seeds make other pairs.
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
            step: which; every step has other pairs.
            batch_size: pairs of the step, of all ranks together.
            rank: this process's, of a training in several processes.
            world_size: how many they are; `batch_size` is a multiple of it.

        Returns:
            `batch_size // world_size` pairs: the rank's share of what one process would get.
        """
        return self._render(step, self.draw(step, batch_size, rank=rank, world_size=world_size))

    def prefetch(
        self,
        start: int,
        batch_size: int,
        *,
        stop: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        ahead: int = 4,
    ) -> Iterator[PairBatch]:
        """The batches of the steps from `start` to `stop - 1`, or endless; parameters are drawn ahead in a thread.

        The same as calling `batch` for each step, which costs the CPU more time between them.
        """
        check_count("ahead", ahead, 1)
        check_count("start", start)
        drawn: queue.Queue[Parameters | BaseException | None] = queue.Queue(ahead)
        ended = threading.Event()

        def put(item: Parameters | BaseException | None) -> bool:
            while not ended.is_set():
                try:
                    drawn.put(item, timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                step = start
                while stop is None or step < stop:
                    if not put(self.draw(step, batch_size, rank=rank, world_size=world_size)):
                        return
                    step += 1
                put(None)
            except BaseException as error:
                put(error)

        thread = threading.Thread(target=work, name="gocor-pairs", daemon=True)
        thread.start()
        try:
            step = start
            while (item := drawn.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield self._render(step, item)
                step += 1
        finally:
            ended.set()
            thread.join()

    def draw(self, step: int, batch_size: int, *, rank: int = 0, world_size: int = 1) -> Parameters:
        """The part of `batch` that the CPU does; arguments as there."""
        check_count("step", step)
        check_count("world_size", world_size, 1)
        check_count("rank", rank)
        check_count("batch_size", batch_size, 1)
        if rank >= world_size or batch_size % world_size:
            got = f"batch_size {batch_size}, rank {rank}, world_size {world_size}"
            raise InputError(f"batch_size must be a multiple of world_size, and rank below it, got {got}")
        rng = np.random.default_rng([self.seed, step])
        drawn = draw_batch(self.preset, self.photos.at(step), self.objects, batch_size, self._frame, rng)
        share = batch_size // world_size
        own = {name: array[rank * share : (rank + 1) * share] for name, array in drawn.items()}
        return Parameters.pack(own, pinned=self.device.type == "cuda")

    def _render(self, step: int, parameters: Parameters) -> PairBatch:
        objects = None if self.objects is None else self.objects.pixels
        return self._renderer(self.photos.pixels(step), objects, parameters.on(self.device))
