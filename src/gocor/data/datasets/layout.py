"""Finding a data set in its public folder layout, and saying what is missing and where to get it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...utils.files import PathLike
from ..io import read_flow, read_image
from ..io.images import READABLE
from .pair import Mask


class MissingDataError(FileNotFoundError):
    """A data set, or a part of it, is not where it was looked for."""


class Layout:
    """The folder of a data set.

    Args:
        title: what people call the data set.
        root: folder that was given: the data set's own, or the one that holds it.
        inside: a folder or file that the data set's folder has, in its public layout.
        names: names of the folder in the public archives, tried within `root`.
        where: where the data set is obtained.
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
        """An error, to be raised, that says what is missing."""
        place = self.root if folder is None else folder
        return MissingDataError(f"{self.title}: {what} is missing in {place}; obtain the data set from {self.where}")

    def need(self, path: PathLike) -> Path:
        """A file or folder below the root that must be there."""
        full = self.root / path
        if not full.exists():
            raise self.missing(path)
        return full

    def some(self, pattern: str) -> list[Path]:
        """Files or folders by a pattern, sorted, at least one."""
        found = sorted(self.root.glob(pattern))
        if not found:
            raise self.missing(pattern)
        return found


def image_in(folder: Path, stem: str) -> Path | None:
    """An image file by its name without suffix."""
    return next((path for suffix in READABLE if (path := folder / f"{stem}{suffix}").is_file()), None)


def load_flow(path: PathLike) -> tuple[np.ndarray, Mask]:
    """Flow `(H, W, 2)` float32 and where it is known, from a file."""
    flow, valid = read_flow(path)
    return np.ascontiguousarray(flow.transpose(1, 2, 0)), valid


def load_mask(path: PathLike) -> Mask:
    """Where a picture is bright, `(H, W)` bool."""
    return np.asarray(read_image(path)[..., 0] > 127)
