"""The pairs that `gocor match` is given: two images, two folders, or a CSV file."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..data.io import iterate_csv
from ..data.io.images import image_files
from ..utils.errors import InputError

SHOWN_NAMES = 3  # names that an error message shows
MAX_NAME = 255  # bytes of the name of a file, in all usual file systems


@dataclass(frozen=True, slots=True)
class Pair:
    """Two image files; the name, which is unique, is empty if there is only one pair."""

    reference: Path
    query: Path
    name: str = ""


def find_pairs(reference: Path, query: Path | None) -> Collection[Pair]:
    """The pair of two images, or the pairs of two folders or of a CSV file.

    Images in two folders form a pair if they have the same name, suffixes aside; other files are ignored. A CSV file
    has the columns `reference` and `query`, with paths relative to the file, and optionally `name`, by default the
    names of both images joined by a hyphen.
    """
    is_list = reference.suffix.lower() == ".csv" and not reference.is_dir()
    if is_list and query is not None:
        raise InputError(f"{reference} takes no QUERY: a .csv file lists both images of a pair")
    if query is None:
        if not is_list:
            raise InputError(f"{reference} needs a QUERY, an image or folder to match it with")
        return PairList(reference)
    for path in (reference, query):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: check the path")
    if reference.is_dir() != query.is_dir():
        raise InputError(f"give two images or two folders, not one of each: {reference} and {query}")
    return _pairs_in_folders(reference, query) if reference.is_dir() else [Pair(reference, query)]


def _pairs_in_folders(reference: Path, query: Path) -> list[Pair]:
    first, second = _images(reference), _images(query)
    unpaired = [
        f"{len(names)} of {folder} {'has' if len(names) == 1 else 'have'} no partner ({_first_names(names)})"
        for folder, names in ((reference, first.keys() - second.keys()), (query, second.keys() - first.keys()))
        if names
    ]
    if unpaired:
        hint = "rename the files, or list the pairs in a .csv file with the columns reference,query"
        raise InputError(f"images in two folders are paired by name, but {' and '.join(unpaired)}: {hint}")
    return [Pair(first[name], second[name], name) for name in sorted(first)]


def _images(folder: Path) -> dict[str, Path]:
    """Image files of a folder by their names without suffix."""
    images: dict[str, Path] = {}
    for path in image_files(sorted(folder.iterdir())):
        if path.stem in images:
            raise InputError(f"{images[path.stem]} and {path.name} have the same name, but images are paired by name")
        images[path.stem] = path
    if not images:
        raise InputError(f"{folder} holds no images")
    return images


def _first_names(names: Collection[str]) -> str:
    shown = sorted(names)[:SHOWN_NAMES]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")


class PairList(Collection[Pair]):
    """The pairs of a CSV file, which are read again in each iteration, so that memory does not grow with their number.

    Args:
        path: the file; it is checked from end to end at once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        names: set[str] = set()
        for number, pair in self._rows():
            if pair.name in names:
                raise InputError(
                    f"{path}, row {number}: a second pair is named {pair.name!r}, give each its own in a column `name`"
                )
            names.add(pair.name)
        if not names:
            raise InputError(f"{path} lists no pairs")
        self._length = len(names)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, pair: object) -> bool:
        return any(pair == other for other in self)

    def __iter__(self) -> Iterator[Pair]:
        return (pair for _, pair in self._rows())

    def _rows(self) -> Iterator[tuple[int, Pair]]:
        for number, values in iterate_csv(self.path, ("reference", "query")):
            if not values["reference"] or not values["query"]:
                raise InputError(f"{self.path}, row {number}: reference and query must both be given")
            reference, query = (self.path.parent / values[column] for column in ("reference", "query"))
            name = values.get("name") or f"{reference.stem}-{query.stem}"
            if name in (".", "..") or set(name) & set("/\\:\0") or len(os.fsencode(name)) > MAX_NAME:
                raise InputError(f"{self.path}, row {number}: the name {name!r} cannot be used as the name of a folder")
            yield number, Pair(reference, query, name)
