"""Photos, kept on the device as uint8 so that one operator gathers a batch of them."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...utils.arrays import Picture
from ...utils.checks import check_count
from ...utils.errors import InputError
from ...utils.files import PathLike
from .sources import ImageFile, evenly_spaced, list_images, read_all, read_rgb

MIN_SIDE = 32  # pixels: a photo with a shorter side shows too little to match
MAX_ASPECT = 0.75  # largest height of a stored photo, relative to `max_side`; more square photos are stored smaller
EPOCH_SEED = 0x70686F74  # seed of the random subsets


@dataclass(frozen=True)
class PhotoSet:
    """Photos that are in memory at the same time.

    Attributes:
        pixels: `(N, 3, Hc, Wc)` uint8 RGB in host memory. A photo lies in the upper left corner and is mirrored at its
            lower and right edges. Photos in portrait format are stored with x and y exchanged.
        sizes: `(N, 2)`, stored heights and widths.
        turned: `(N,)` bool, whether x and y are exchanged.
    """

    pixels: Tensor
    sizes: NDArray[np.int64]
    turned: NDArray[np.bool_]


class PhotoStore:
    """Photos of folders and zip files, on a device.

    If `memory` is too small for all photos, the store holds a random subset, which changes every `period` steps and
    depends on the step alone. The next subset is read in the background, so that host memory holds several subsets.
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
        self.device = torch.empty(0, device=device).device  # with its number: "cuda" becomes "cuda:0"
        self._files, self._max_side, self._threads = list(files), max_side, threads
        per_photo = 3 * max_side * round(MAX_ASPECT * max_side)
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
        """Read the photos of folders and zip files.

        Files that are not images, or have a side below 32 pixels, are skipped with one `SkippedFilesWarning`.

        Args:
            source: a folder, which is searched recursively, a zip file, or a list of them.
            device: device to keep the photos on; pairs are made there.
            limit: largest number of photos, evenly spaced among all.
            max_side: larger photos are resized to this longer side, and to at most 3/4 of it for the shorter side.
            memory: largest number of bytes on the device.
            period: number of steps after which the subset changes, if `memory` is too small for all photos.
            threads: number of threads that decode images.
        """
        for name, value in (("max_side", max_side), ("memory", memory), ("period", period), ("threads", threads)):
            check_count(name, value, 2 * MIN_SIDE if name == "max_side" else 1)
        files = evenly_spaced(list_images(source), limit)
        return cls(files, device=device, max_side=max_side, memory=memory, period=period, threads=threads)

    def __len__(self) -> int:
        """Number of photos; if `memory` is too small for all, the number of files, readable or not."""
        return len(self._files) if self.period else len(self.at(0).sizes)

    def at(self, step: int) -> PhotoSet:
        """The photos of a training step. Waits until they are read, and starts to read the next subset."""
        epoch = step // self.period if self.period else 0
        photos = self._request(epoch).result()
        if self.period:
            self._request(epoch + 1)
        return photos

    def _request(self, epoch: int) -> "Future[PhotoSet]":
        """The photos of an epoch. A thread reads them unless one has already; photos of distant epochs are dropped."""
        with self._lock:
            for other in [e for e in self._sets if not epoch - 2 <= e <= epoch + 2]:
                del self._sets[other]
            if epoch not in self._sets:
                future: Future[PhotoSet] = Future()
                self._sets[epoch] = future
                # The thread is a daemon, so that the program can end while photos are being read.
                threading.Thread(target=self._resolve, args=(future, epoch), name="gocor-photos", daemon=True).start()
            return self._sets[epoch]

    def _resolve(self, future: "Future[PhotoSet]", epoch: int) -> None:
        try:
            future.set_result(self._read(epoch))
        except BaseException as error:
            future.set_exception(error)

    def pixels(self, step: int) -> Tensor:
        """The photos of a training step on the device: `(N, 3, Hc, Wc)` uint8."""
        epoch = step // self.period if self.period else 0
        if self._resident is None or self._resident[0] != epoch:
            self._resident = None  # frees the memory of the previous photos first
            self._resident = (epoch, self.at(step).pixels.to(self.device))
        return self._resident[1]

    def _read(self, epoch: int) -> PhotoSet:
        files = self._files
        if self.period:
            chosen = np.random.default_rng([EPOCH_SEED, epoch]).permutation(len(files))[: self._capacity]
            files = [files[i] for i in np.sort(chosen)]
        photos = [photo for _, photo in read_all(files, self._prepare, threads=self._threads, what="photos")]
        sizes = np.array([photo.shape[:2] for photo, _ in photos])
        canvas = (sizes.max(0) + 3) // 4 * 4  # can be halved twice
        pixels = np.empty((len(photos), 3, *canvas), np.uint8)
        for into, (photo, _) in zip(pixels, photos, strict=True):
            padding = ((0, canvas[0] - photo.shape[0]), (0, canvas[1] - photo.shape[1]), (0, 0))
            into[:] = np.pad(photo, padding, "symmetric").transpose(2, 0, 1)
        return PhotoSet(torch.from_numpy(pixels), sizes, np.array([turned for _, turned in photos]))

    def _prepare(self, file: ImageFile) -> tuple[Picture, bool]:
        """Read a photo in landscape format and resize it; returns it, and whether x and y were exchanged."""
        import cv2

        rgb = read_rgb(file)
        turned = rgb.shape[0] > rgb.shape[1]
        if turned:
            rgb = np.ascontiguousarray(rgb.swapaxes(0, 1))
        height, width = rgb.shape[:2]
        if height < MIN_SIDE:
            raise InputError(f"{height}×{width} pixels are too few: the shorter side must have {MIN_SIDE}")
        factor = min(1.0, self._max_side / width, round(MAX_ASPECT * self._max_side) / height)
        if factor < 1:
            size = (max(2, round(factor * width)), max(2, round(factor * height)))
            rgb = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA))
        if min(rgb.shape[:2]) < MIN_SIDE:
            raise InputError(
                f"{height}×{width} pixels are too elongated: the shorter side must have {MIN_SIDE} after resizing"
            )
        return rgb, turned
