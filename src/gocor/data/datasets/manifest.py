"""Your own pairs, listed in a CSV or JSON file."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...utils.arrays import Array
from ...utils.documents import parse_json
from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from ..io import read_csv, read_image
from .hpatches import check_homography, read_homography
from .layout import load_flow, load_mask
from .pair import Item, Pair, PairDataset, homography_pair

TRUTHS = ("flow", "points", "homography")
COLUMNS = ("reference", "query", "name", *TRUTHS, "valid", "occluded", "group")
# Types of values that need not be text, and what an error calls them.
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "points": ((str, list), "a path or a list"),
    "homography": ((str, list), "a path or a list"),
    "name": ((str, int, float), "text or a number"),
    "group": ((str, int, float), "text or a number"),
}
SHOWN = 60  # characters of a value in an error
POINT_COLUMNS = ("x", "y", "x_query", "y_query")


def manifest(root: PathLike) -> PairDataset:
    """Pairs of a CSV file with a header, or of a JSON file with a list of objects.

    Columns or keys, whose paths are relative to the file:
        reference, query: images.
        flow: a flow file, see `read_flow`.
        points: a CSV file with the columns x, y, x_query, y_query; in JSON also a list of such rows.
        homography: reference → query, a text file of nine numbers; in JSON also three rows of three numbers.
        name: optional; by default the names of both images joined by a hyphen.
        valid: optional, goes with flow: an image that is white where the flow is known.
        occluded: optional, goes with flow: an image that is white where a pixel is occluded in the query.
        group: optional.

    Each pair has exactly one of flow, points and homography.
    """
    path = Path(root)
    if path.suffix.lower() not in (".csv", ".json"):
        raise InputError(f"{path}: a manifest must be a .csv or .json file")
    is_csv = path.suffix.lower() == ".csv"
    rows: list[Any] = [row.values for row in read_csv(path)] if is_csv else _read_json(path)
    items: dict[str, Item] = {}
    for number, row in enumerate(rows, 1):
        where = f"{path}, pair {number}"
        entry = _checked(row, where)
        if entry["name"] in items:
            raise InputError(f"{where}: a second pair is named {entry['name']!r}, give each its own name")
        group = str(entry.get("group", ""))
        items[entry["name"]] = Item(entry["name"], partial(_read, entry, path.parent, where), group)
    if not items:
        raise InputError(f"{path} lists no pairs")
    return PairDataset(path.stem, list(items.values()))


def _read_json(path: Path) -> list[Any]:
    data = read_bytes(path)
    try:
        rows = parse_json(data)
    except InputError as error:
        raise InputError(f"{path} is {error}") from None
    if not isinstance(rows, list):
        raise InputError(f"{path} must hold a list of pairs, got {type(rows).__name__}")
    return rows


def _checked(row: Any, where: str) -> dict[str, Any]:
    """The values of a row that are not empty, with a name."""
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected an object, got {type(row).__name__}")
    entry = {key: value for key, value in row.items() if value not in ("", None)}
    unknown = sorted(set(entry) - set(COLUMNS))
    if unknown:
        raise InputError(f"{where}: there is no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    for key in ("reference", "query"):
        if not isinstance(entry.get(key), str):
            raise InputError(f"{where}: {key} must be the path of an image, got {_shown(entry.get(key))}")
    for key, value in entry.items():
        allowed, expected = KINDS.get(key, (str, "text"))
        if not isinstance(value, allowed) or (isinstance(value, str) and not _is_text(value)):
            raise InputError(f"{where}: {key} must be {expected}, got {_shown(value)}")
    truths = [key for key in TRUTHS if key in entry]
    if len(truths) != 1:
        raise InputError(f"{where}: give one of flow, points, homography, got {' and '.join(truths) or 'none'}")
    masks = [key for key in ("valid", "occluded") if key in entry]
    if masks and truths != ["flow"]:
        raise InputError(f"{where}: {masks[0]} can only be given with flow, got {truths[0]}")
    entry["name"] = str(entry.get("name") or f"{Path(entry['reference']).stem}-{Path(entry['query']).stem}")
    return entry


def _is_text(value: str) -> bool:
    """Whether a string can be a path or a name: valid Unicode, which JSON's escapes need not be, without NUL."""
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _read(entry: Mapping[str, Any], folder: Path, where: str) -> Pair:
    name, group = entry["name"], str(entry.get("group", ""))
    reference, query = (read_image(folder / entry[key]) for key in ("reference", "query"))
    if "points" in entry:
        return Pair(name, reference, query, points=_points(entry["points"], folder, where), group=group)
    if "homography" in entry:
        value = entry["homography"]
        matrix = read_homography(folder / value) if isinstance(value, str) else check_homography(value, where)
        return homography_pair(name, reference, query, matrix, group=group)
    flow, valid = load_flow(folder / entry["flow"])
    masks = {key: load_mask(folder / entry[key]) for key in ("valid", "occluded") if key in entry}
    for key, mask in masks.items():
        if mask.shape != valid.shape:
            raise InputError(f"{where}: {key} has {mask.shape} pixels, the flow has {valid.shape}")
    valid = valid & masks.get("valid", valid)
    return Pair(name, reference, query, flow * valid[..., None], valid, masks.get("occluded"), group=group)


def _points(value: Any, folder: Path, where: str) -> Array:
    if isinstance(value, str):
        where = str(folder / value)
        value = [[row.values[column] for column in POINT_COLUMNS] for row in read_csv(where, POINT_COLUMNS)]
    try:
        points = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        points = np.empty(0)
    if points.ndim != 2 or points.shape[1] != 4 or not np.isfinite(points).all() or not len(points):
        raise InputError(f"{where}: points must be rows of four finite numbers, {', '.join(POINT_COLUMNS)}")
    return points
