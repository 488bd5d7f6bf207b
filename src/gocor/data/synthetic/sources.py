"""Image files in folders and zip files, read by several threads."""

import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from ...utils.archives import open_zip, read_member
from ...utils.arrays import Picture
from ...utils.checks import check_count
from ...utils.errors import GOCorError, InputError
from ...utils.files import PathLike, read_bytes
from ..io.images import READABLE, decode_rgb, decode_upright

T = TypeVar("T")


class SkippedFilesWarning(UserWarning):
    """Some files of a folder or zip file could not be used."""


@dataclass(frozen=True)
class ImageFile:
    """An image in a folder or in an open zip file."""

    source: Path
    name: str
    archive: zipfile.ZipFile | None = None

    def read(self) -> bytes:
        """Read the content of the file."""
        if self.archive is None:
            return read_bytes(self.source / self.name)
        return read_member(self.archive, self.name)

    def __str__(self) -> str:
        return f"{self.source}/{self.name}"


def list_images(source: PathLike | Sequence[PathLike]) -> list[ImageFile]:
    """List the image files of folders, which are searched recursively, and of zip files; each is sorted by name.

    It is an error if a source does not exist or has no image files.
    """
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not sources:
        raise InputError("no images were given: give a folder or a zip file")
    return [file for one in sources for file in _list_one(Path(one))]


def _list_one(source: Path) -> list[ImageFile]:
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist: give a folder or a zip file of images")
    if source.is_dir():
        names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
        archive = None
    else:
        try:
            archive = open_zip(source)
        except InputError as error:
            raise InputError(f"{source} is neither a folder nor a zip file of images: {error}") from None
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
    # Operating systems leave hidden files in folders and archives, some of which have the suffix of an image.
    kept = [name for name in names if not any(part[:1] == "." or part == "__MACOSX" for part in name.split("/"))]
    found = sorted(name for name in kept if Path(name).suffix.lower() in READABLE)
    if not found:
        raise InputError(f"{source} has no image files ({', '.join(sorted(READABLE))}): give a folder or zip of images")
    return [ImageFile(source, name, archive) for name in found]


def evenly_spaced(items: Sequence[T], limit: int | None) -> list[T]:
    """At most `limit` items, evenly spaced, the first and the last included; all of them if `limit` is None."""
    if limit is None:
        return list(items)
    check_count("limit", limit, 1)
    count = min(limit, len(items))
    return [items[i * (len(items) - 1) // max(count - 1, 1)] for i in range(count)]


def read_pixels(file: ImageFile) -> NDArray[Any]:
    """Read an upright image, `(H, W)` or `(H, W, C)` in RGB(A) order, in its own dtype."""
    return decode_upright(file.read())


def read_rgb(file: ImageFile) -> Picture:
    """Read an image as 8-bit RGB `(H, W, 3)`, as `gocor.data.io.read_image` does."""
    return decode_rgb(file.read())


def read_all(files: Sequence[T], read: Callable[[T], Any], *, threads: int, what: str) -> Iterator[tuple[T, Any]]:
    """Apply `read` to all files in several threads; yield each file with its result, in order.

    Files that cannot be read are skipped, and one warning at the end counts them. It is an error if all are skipped.
    """
    failed: list[str] = []
    succeeded = 0
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(files), 64):  # bounds the number of results in memory
            chunk = files[start : start + 64]
            for file, outcome in zip(chunk, pool.map(lambda one: _try(read, one), chunk), strict=True):
                if isinstance(outcome, Exception):
                    failed.append(f"{file}: {outcome}")
                else:
                    succeeded += 1
                    yield file, outcome
    if failed and not succeeded:
        raise InputError(f"none of {len(failed)} {what} can be used; the first failed with: {failed[0]}")
    if failed:
        message = f"{len(failed)} of {len(files)} {what} were skipped; the first failed with: {failed[0]}"
        warnings.warn(message, SkippedFilesWarning, stacklevel=2)


def _try(read: Callable[[T], Any], file: T) -> Any:
    try:
        return read(file)
    except (GOCorError, OSError) as error:
        return error
