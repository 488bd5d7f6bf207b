"""Images of folders and zip files, read in threads."""

import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...utils.checks import check_count
from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from ..io import to_rgb
from ..io.images import READABLE, decode, upright

T = TypeVar("T")


class SkippedFilesWarning(UserWarning):
    """Files of a source could not be used."""


@dataclass(frozen=True)
class ImageFile:
    """An image in a folder, or in a zip file that is open."""

    source: Path
    name: str
    archive: zipfile.ZipFile | None = None

    def read(self) -> bytes:
        """The file's content."""
        return read_bytes(self.source / self.name) if self.archive is None else self.archive.read(self.name)

    def __str__(self) -> str:
        return f"{self.source}/{self.name}"


def list_images(source: PathLike | Sequence[PathLike]) -> list[ImageFile]:
    """All image files of one or several folders (and the folders in them) or zip files, by name within each.

    A source that does not exist, or has no image files, is an error.
    """
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not sources:
        raise InputError("no source of images was given: give a folder or a zip file")
    return [file for one in sources for file in _list_one(Path(one))]


def _list_one(source: Path) -> list[ImageFile]:
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist: give a folder or a zip file of images")
    if source.is_dir():
        names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
        archive = None
    elif zipfile.is_zipfile(source):
        archive = zipfile.ZipFile(source)
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
    else:
        raise InputError(f"{source} is neither a folder nor a zip file: give a folder or a zip file of images")
    # What other systems leave in archives and folders begins with a dot, or lies in such a folder.
    kept = [name for name in names if not any(part[:1] == "." or part == "__MACOSX" for part in name.split("/"))]
    found = sorted(name for name in kept if Path(name).suffix.lower() in READABLE)
    if not found:
        raise InputError(f"{source} has no image files ({', '.join(sorted(READABLE))}): give a folder or zip of images")
    return [ImageFile(source, name, archive) for name in found]


def evenly_spaced(items: Sequence[T], limit: int | None) -> list[T]:
    """At most `limit` of the items, from the first to the last; all for None."""
    if limit is None:
        return list(items)
    check_count("limit", limit, 1)
    count = min(limit, len(items))
    return [items[i * (len(items) - 1) // max(count - 1, 1)] for i in range(count)]


def read_pixels(file: ImageFile) -> NDArray[Any]:
    """An image upright, `(H, W)` or `(H, W, C)` in the order RGB(A), of whatever type it is stored in."""
    pixels = upright(*decode(file.read()))
    return pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if pixels.ndim == 3 and pixels.shape[2] in (3, 4) else pixels


def read_rgb(file: ImageFile) -> NDArray[np.uint8]:
    """An image as 8-bit RGB `(H, W, 3)`, as `gocor.data.io.read_image` would read it."""
    pixels = read_pixels(file)
    return to_rgb(np.clip(np.nan_to_num(pixels, nan=0.0), 0, 1) if pixels.dtype.kind == "f" else pixels)


def read_all(files: Sequence[T], read: Callable[[T], Any], *, threads: int, what: str) -> Iterator[tuple[T, Any]]:
    """What `read` makes of each file, in order, with as many threads.

    Files on which `read` raises ValueError or OSError are left out; one warning at the end counts them. If none is
    left, that is an error.
    """
    failed: list[str] = []
    succeeded = 0
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(files), 64):  # no more than these wait in memory
            chunk = files[start : start + 64]
            for file, outcome in zip(chunk, pool.map(lambda one: _try(read, one), chunk), strict=True):
                if isinstance(outcome, Exception):
                    failed.append(f"{file}: {outcome}")
                else:
                    succeeded += 1
                    yield file, outcome
    if failed and not succeeded:
        raise InputError(f"none of {len(failed)} {what} can be used, the first because of: {failed[0]}")
    if failed:
        message = f"{len(failed)} of {len(files)} {what} left out, the first because of: {failed[0]}"
        warnings.warn(message, SkippedFilesWarning, stacklevel=2)


def _try(read: Callable[[T], Any], file: T) -> Any:
    try:
        return read(file)
    except (ValueError, TypeError, OSError, zipfile.BadZipFile, RuntimeError) as error:
        return error
