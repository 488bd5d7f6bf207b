"""MegaDepth: the 1600 test pairs of RANSAC-Flow with large viewpoint changes; sparse ground truth in a CSV file."""

from functools import partial
from pathlib import Path

import numpy as np

from ...utils.errors import InputError
from ...utils.files import PathLike
from ..io import read_csv, read_image
from .layout import Layout
from .pair import Item, Pair, PairDataset

WHERE = "https://github.com/XiSHEN0220/RANSAC-Flow (evaluation/evalCorr)"
CSV, IMAGES = "test1600Pairs.csv", "test1600Pairs"
COLUMNS = ("source_image", "target_image", "scene", "XA", "YA", "XB", "YB")


def megadepth(root: PathLike) -> PairDataset:
    """Read `test1600Pairs.csv` and the folder `test1600Pairs` beside it.

    A is the source image, which becomes the query; B is the target image, which becomes the reference. Points are in
    pixels of the original images.
    """
    layout = Layout("MegaDepth", root, inside=CSV, names=("MegaDepth/Test", "Test", "MegaDepth"), where=WHERE)
    images = layout.need(IMAGES)
    path = layout.need(CSV)
    items = []
    for index, (_, row) in enumerate(read_csv(path, COLUMNS)):
        name = f"{index:04d}"
        folder = images if row["scene"] in ("/", "") else images / row["scene"]
        values = [row[column] for column in ("XB", "YB", "XA", "YA")]
        read = partial(_read, name, folder / row["target_image"], folder / row["source_image"], values, path)
        items.append(Item(name, read))
    if not items:
        raise layout.missing("any pair")
    return PairDataset("megadepth", items)


def _read(name: str, reference: Path, query: Path, values: list[str], source: Path) -> Pair:
    try:
        points = np.stack([np.array(value.split(";"), np.float64) for value in values], 1)
    except ValueError:
        points = np.full((1, 4), np.nan)
    if not np.isfinite(points).all():
        raise InputError(
            f"{source}, pair {name}: XA, YA, XB and YB must hold the same number of values, separated by semicolons"
        )
    return Pair(name, read_image(reference), read_image(query), points=points)
