"""MegaDepth's 1600 test pairs of RANSAC-Flow: extreme changes of viewpoint, sparse ground truth in a CSV file."""

import csv
import io
from functools import partial
from pathlib import Path

import numpy as np

from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from ..io import read_image
from .layout import Layout
from .pair import Item, Pair, PairDataset

WHERE = "https://github.com/XiSHEN0220/RANSAC-Flow (evaluation/evalCorr)"
CSV, IMAGES = "test1600Pairs.csv", "test1600Pairs"
COLUMNS = ("source_image", "target_image", "scene", "XA", "YA", "XB", "YB")


def megadepth(root: PathLike) -> PairDataset:
    """`test1600Pairs.csv` beside the folder `test1600Pairs`: A is the source (query), B the target (reference).

    Points are those of the file, in pixels of the images as they are.
    """
    layout = Layout("MegaDepth", root, inside=CSV, names=("MegaDepth/Test", "Test", "MegaDepth"), where=WHERE)
    images = layout.need(IMAGES)
    path = layout.need(CSV)
    rows = list(csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8-sig"))))
    absent = [column for column in COLUMNS if not rows or rows[0].get(column) is None]
    if absent:
        raise InputError(f"{path} must have the columns {', '.join(COLUMNS)}, {absent[0]} is missing or empty")
    items = []
    for number, row in enumerate(rows):
        name = f"{number:04d}"
        folder = images if row["scene"] in ("/", "") else images / row["scene"]
        values = [row[column] for column in ("XB", "YB", "XA", "YA")]
        read = partial(_read, name, folder / row["target_image"], folder / row["source_image"], values, path)
        items.append(Item(name, read))
    return PairDataset("megadepth", items)


def _read(name: str, reference: Path, query: Path, values: list[str], source: Path) -> Pair:
    try:
        points = np.stack([np.array(value.split(";"), np.float64) for value in values], 1)
    except (AttributeError, ValueError):
        raise InputError(
            f"{source}, pair {name}: XA, YA, XB and YB must be equally many numbers with ; between"
        ) from None
    return Pair(name, read_image(reference), read_image(query), points=points)
