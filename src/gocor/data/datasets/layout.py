"""Folders of data sets: finding one in its public layout, and errors that say what is missing and where to get it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...utils.arrays import FlowField, Mask
from ...utils.errors import GOCorError
from ...utils.files import PathLike
from ..io import read_flow, read_image
from ..io.images import READABLE


class MissingDataError(GOCorError, FileNotFoundError):
    """A data set or a part of it is missing."""


class Layout:
    """The folder of a data set.

    Args:
        title: name of the data set in error messages.
        root: the data set's own folder, or the folder that contains it.
        inside: pattern of a file or folder by which the data set's own folder is recognised.
        names: names of that folder in the public archives, which are tried inside `root`.
        where: address to obtain the data set from.
    """

    def __init__(self, title: str, root: PathLike, *, inside: str, names: Sequence[str] = (), where: str) -> None:
        self.title, self.where = title, where
        given = Path(root)
        found = [folder for folder in (given, *(given / name for name in names)) if any(folder.glob(inside))]
        if not given.is_dir():
            raise MissingDataError(f"{given} is not a folder: {title} is expected there; obtain it from {where}")
        if not found:
            raise self.missing(inside, given)
        self.root = found[0]

    def missing(self, what: PathLike, folder: PathLike | None = None) -> MissingDataError:
        """The error to raise if a part of the data set is missing."""
        place = self.root if folder is None else folder
        return MissingDataError(f"{self.title}: {what} is missing in {place}; obtain the data set from {self.where}")

    def need(self, path: PathLike) -> Path:
        """Path of a file or folder that must exist below the root."""
        full = self.root / path
        if not full.exists():
            raise self.missing(path)
        return full

    def some(self, pattern: str) -> list[Path]:
        """Sorted paths of all files or folders that match a pattern; at least one must exist."""
        found = sorted(self.root.glob(pattern))
        if not found:
            raise self.missing(pattern)
        return found

    def image(self, folder: Path, stem: str) -> Path:
        """Path of the image with this name and any suffix, which must exist."""
        found = image_in(folder, stem)
        if found is None:
            raise self.missing(f"the image {stem}", folder)
        return found


def image_in(folder: Path, stem: str) -> Path | None:
    """Path of the image with this name and any suffix; None if there is none."""
    return next((path for suffix in READABLE if (path := folder / f"{stem}{suffix}").is_file()), None)


def load_flow(path: PathLike) -> tuple[FlowField, Mask]:
    """Read a flow `(H, W, 2)` float32 and the mask `(H, W)` of the pixels whose flow is known."""
    flow, valid = read_flow(path)
    return np.ascontiguousarray(flow.transpose(1, 2, 0)), valid


def load_mask(path: PathLike) -> Mask:
    """Read a black and white picture as a mask `(H, W)`, true where it is white."""
    return np.asarray(read_image(path)[..., 0] > 127)
