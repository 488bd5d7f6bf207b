"""The pairs that `gocor match` is asked for: two images, two folders, or a CSV file."""

import csv
import io
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ..data.io.images import READABLE
from ..utils.errors import InputError
from ..utils.files import read_bytes

SHOWN_NAMES = 3  # in an error


@dataclass(frozen=True)
class Pair:
    """Two image files, and the folder for their result; one of many has a name."""

    reference: Path
    query: Path
    folder: Path
    name: str = ""


def find_pairs(reference: Path, query: Path | None, output: Path) -> list[Pair]:
    """Pairs of two images (into `output`), of two folders, or of a CSV file (into `output/name`).

    Images in two folders belong together where their names, suffixes aside, are the same; what is not an image is left
    out. A CSV file has the columns `reference` and `query`, paths from where it lies, and optionally `name`, by default
    the names of both images with a hyphen between them.
    """
    is_list = reference.suffix.lower() == ".csv" and not reference.is_dir()
    if is_list != (query is None):
        raise InputError(f"{reference} {'takes no QUERY: a .csv file lists both' if is_list else 'needs a QUERY'}")
    if query is None:
        return _listed(reference, output)
    for path in (reference, query):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: check the path")
    if reference.is_dir() != query.is_dir():
        raise InputError(f"give two images or two folders, not one of each: {reference} and {query}")
    return _in_folders(reference, query, output) if reference.is_dir() else [Pair(reference, query, output)]


def _in_folders(reference: Path, query: Path, output: Path) -> list[Pair]:
    first, second = _images(reference), _images(query)
    alone = [
        f"{len(names)} of {folder} {'has' if len(names) == 1 else 'have'} no partner ({_some(names)})"
        for folder, names in ((reference, first.keys() - second.keys()), (query, second.keys() - first.keys()))
        if names
    ]
    if alone:
        hint = "rename the files, or list the pairs in a .csv file with the columns reference,query"
        raise InputError(f"images in two folders are paired by name, but {' and '.join(alone)}: {hint}")
    return [Pair(first[name], second[name], output / name, name) for name in sorted(first)]


def _images(folder: Path) -> dict[str, Path]:
    """Image files of a folder by their names without suffix."""
    images: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in READABLE and not path.name.startswith(".") and path.is_file():
            if path.stem in images:
                raise InputError(f"{images[path.stem]} and {path.name} have one name: images are paired by it")
            images[path.stem] = path
    if not images:
        raise InputError(f"{folder} holds no images")
    return images


def _some(names: Collection[str]) -> str:
    shown = sorted(names)[:SHOWN_NAMES]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")


def _listed(path: Path, output: Path) -> list[Pair]:
    try:
        rows = list(csv.reader(io.StringIO(read_bytes(path).decode("utf-8-sig")), skipinitialspace=True, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: {error}") from None
    header = [column.strip().lower() for column in rows[0]] if rows else []
    if not {"reference", "query"} <= set(header):
        raise InputError(f"{path} must begin with the columns reference,query and optionally name, got {header}")
    pairs: dict[str, Pair] = {}
    for number, row in enumerate(rows[1:], 2):
        values = dict(zip(header, map(str.strip, row), strict=False))
        if not any(values.values()):
            continue
        if len(row) != len(header) or not values["reference"] or not values["query"]:
            raise InputError(f"{path}, row {number}: expected a value for each of {','.join(header)}, got {row}")
        reference, query = (path.parent / values[column] for column in ("reference", "query"))
        name = values.get("name") or f"{reference.stem}-{query.stem}"
        if name in (".", "..") or set(name) & set("/\\:\0"):
            raise InputError(f"{path}, row {number}: a name is a folder to be made, {name!r} cannot be one")
        if name in pairs:
            raise InputError(f"{path}, row {number}: a second pair named {name!r}, give each its own in a column name")
        pairs[name] = Pair(reference, query, output / name, name)
    if not pairs:
        raise InputError(f"{path} lists no pairs")
    return list(pairs.values())
