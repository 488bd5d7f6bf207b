"""Photos that stay on the device as uint8, so that a batch of them is gathered by one operator."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...utils.checks import check_count
from ...utils.errors import InputError
from ...utils.files import PathLike
from .sources import ImageFile, evenly_spaced, list_images, read_all, read_rgb

MIN_SIDE = 32  # photos with a shorter side have nothing to match
SHAPE = 0.75  # room for photos of up to this shape (shorter over longer side): a square one is stored smaller


@dataclass(frozen=True)
class PhotoSet:
    """Photos that are resident at one time.

    Attributes:
        pixels: `(N, 3, Hc, Wc)` uint8 RGB in host memory. A photo lies in the upper left corner, mirrored at its lower
            and right edges; upright ones are stored with x and y exchanged.
        sizes: `(N, 2)` heights and widths as stored.
        turned: `(N,)` bool, whether x and y are exchanged.
    """

    pixels: Tensor
    sizes: NDArray[np.int64]
    turned: NDArray[np.bool_]


class PhotoStore:
    """Photos of folders and zip files, on a device.

    Where there are more photos than `memory` holds, the store holds a random subset of as many as fit, another one
    every `period` steps; which one depends on the step alone. The next is read in the background; some such sets are in
    host memory then.
    """

    def __init__(
        self,
        files: Sequence[ImageFile],
        *,
        device: torch.device | str = "cpu",
        max_side: int = 576,
        memory: int = 2 << 30,
        period: int = 2000,
        threads: int = 8,
    ) -> None:
        self.device = torch.empty(0, device=device).device  # "cuda" is one of several
        self._files, self._max_side, self._threads = list(files), max_side, threads
        per_photo = 3 * max_side * round(SHAPE * max_side)
        self._capacity = max(1, memory // per_photo)
        self.period = period if len(files) > self._capacity else 0
        self._sets: dict[int, Future[PhotoSet]] = {}
        self._lock = threading.Lock()
        self._resident: tuple[int, Tensor] | None = None
        first: Future[PhotoSet] = Future()
        first.set_result(self._read(0))
        self._sets[0] = first

    @classmethod
    def open(
        cls,
        source: PathLike | Sequence[PathLike],
        *,
        device: torch.device | str = "cpu",
        limit: int | None = None,
        max_side: int = 576,
        memory: int = 2 << 30,
        period: int = 2000,
        threads: int = 8,
    ) -> Self:
        """Read the photos of a folder, of a zip file, or of several.

        Files that are no images, or have a side below 32 pixels, are left out with one `SkippedFilesWarning`.

        Args:
            source: folder (with all folders in it) or zip file, or a list of such.
            device: where the photos are held, and pairs are made.
            limit: at most this many photos, evenly spaced among all.
            max_side: larger photos are shrunk to this longer side, and to 3/4 of it for the shorter one.
            memory: bytes that the photos may take up on the device.
            period: steps after which photos are exchanged, where there are more than fit.
            threads: that decode at once.
        """
        for name, value in (("max_side", max_side), ("memory", memory), ("period", period), ("threads", threads)):
            check_count(name, value, 2 * MIN_SIDE if name == "max_side" else 1)
        files = evenly_spaced(list_images(source), limit)
        return cls(files, device=device, max_side=max_side, memory=memory, period=period, threads=threads)

    def __len__(self) -> int:
        """Number of photos; where they take turns, of all files, readable or not."""
        return len(self._files) if self.period else len(self.at(0).sizes)

    def at(self, step: int) -> PhotoSet:
        """The photos of a training step, waiting until they are read; begins to read the next ones."""
        epoch = step // self.period if self.period else 0
        photos = self._request(epoch).result()
        if self.period:
            self._request(epoch + 1)
        return photos

    def _request(self, epoch: int) -> "Future[PhotoSet]":
        """The photos of an epoch, which a thread reads unless they are at hand; forgets those of far epochs."""
        with self._lock:
            for other in [e for e in self._sets if not epoch - 2 <= e <= epoch + 2]:
                del self._sets[other]
            if epoch not in self._sets:
                future: Future[PhotoSet] = Future()
                self._sets[epoch] = future
                # A daemon, so that a program which ends does not wait for photos of its future.
                threading.Thread(target=self._fulfil, args=(future, epoch), name="gocor-photos", daemon=True).start()
            return self._sets[epoch]

    def _fulfil(self, future: "Future[PhotoSet]", epoch: int) -> None:
        try:
            future.set_result(self._read(epoch))
        except BaseException as error:
            future.set_exception(error)

    def pixels(self, step: int) -> Tensor:
        """Pixels of a training step's photos on the device: `(N, 3, Hc, Wc)` uint8."""
        epoch = step // self.period if self.period else 0
        if self._resident is None or self._resident[0] != epoch:
            self._resident = None  # frees the room of the photos before
            self._resident = (epoch, self.at(step).pixels.to(self.device))
        return self._resident[1]

    def _read(self, epoch: int) -> PhotoSet:
        files = self._files
        if self.period:
            chosen = np.random.default_rng([0x70686F74, epoch]).permutation(len(files))[: self._capacity]
            files = [files[i] for i in np.sort(chosen)]
        photos = [photo for _, photo in read_all(files, self._prepare, threads=self._threads, what="photos")]
        sizes = np.array([photo.shape[:2] for photo, _ in photos])
        room = (sizes.max(0) + 3) // 4 * 4  # can be halved twice
        pixels = np.empty((len(photos), 3, *room), np.uint8)
        for into, (photo, _) in zip(pixels, photos, strict=True):
            beyond = ((0, room[0] - photo.shape[0]), (0, room[1] - photo.shape[1]), (0, 0))
            into[:] = np.pad(photo, beyond, "symmetric").transpose(2, 0, 1)
        return PhotoSet(torch.from_numpy(pixels), sizes, np.array([turned for _, turned in photos]))

    def _prepare(self, file: ImageFile) -> tuple[NDArray[np.uint8], bool]:
        import cv2

        rgb = read_rgb(file)
        turned = rgb.shape[0] > rgb.shape[1]
        if turned:
            rgb = np.ascontiguousarray(rgb.swapaxes(0, 1))
        height, width = rgb.shape[:2]
        if height < MIN_SIDE:
            raise InputError(f"{height}×{width} pixels are too few, the shorter side must have {MIN_SIDE}")
        factor = min(1.0, self._max_side / width, round(SHAPE * self._max_side) / height)
        if factor < 1:
            size = (max(2, round(factor * width)), max(2, round(factor * height)))
            rgb = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA))
        if min(rgb.shape[:2]) < MIN_SIDE:
            raise InputError(
                f"{height}×{width} pixels are too long a shape, {MIN_SIDE} would not be left after shrinking"
            )
        return rgb, turned
