"""HPatches: planar scenes under changes of viewpoint (v_) or illumination (i_); homographies are the ground truth."""

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from ...utils.arrays import Array
from ...utils.checks import check_choice
from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from ..io import read_image
from .layout import Layout
from .pair import Item, Pair, PairDataset, homography_pair

WHERE = "https://github.com/hpatches/hpatches-dataset (hpatches-sequences-release)"
VIEWS = range(2, 7)
MAX_VALUE = 1e15  # largest entry of a homography; beyond it, sums with pixels have no digits left


def hpatches(
    root: PathLike,
    *,
    split: Literal["v", "i", "all"] = "v",
    reference: Literal["first", "other"] = "other",
) -> PairDataset:
    """Read `hpatches-sequences-release`: folders v_* and i_* with images 1 to 6 and homographies H_1_2 to H_1_6.

    Args:
        root: the folder of sequences.
        split: changes of viewpoint, of illumination, or both.
        reference: `"other"`, as in the paper: images 2 to 6 are the references and image 1 is always the query;
            `"first"`: image 1 is the reference and images 2 to 6 are the queries.

    Pairs are grouped by the number of the other image. Homographies that a sequence lacks are skipped.
    """
    check_choice("split", split, ("v", "i", "all"))
    check_choice("reference", reference, ("first", "other"))
    prefix = "[vi]" if split == "all" else split
    names = ("hpatches-sequences-release", "hpatches")
    layout = Layout("HPatches", root, inside=f"{prefix}_*/H_1_*", names=names, where=WHERE)
    items = []
    for folder in layout.some(f"{prefix}_*"):
        for view in VIEWS:
            if not (folder / f"H_1_{view}").is_file():
                continue
            first, other = (layout.image(folder, str(number)) for number in (1, view))
            name = f"{folder.name}_1_{view}"
            read = partial(_read, name, str(view), first, other, folder / f"H_1_{view}", reference == "other")
            items.append(Item(name, read, str(view)))
    return PairDataset("hpatches" if split == "v" else f"hpatches-{split}", items)


def _read(name: str, view: str, first: Path, other: Path, matrix: Path, exchange: bool) -> Pair:
    homography, images = read_homography(matrix), (read_image(first), read_image(other))
    if exchange:
        homography, images = np.asarray(np.linalg.inv(homography), np.float64), images[::-1]
    return homography_pair(name, *images, homography, group=view)


def read_homography(path: PathLike) -> Array:
    """Read a 3×3 matrix from a text file of nine numbers."""
    try:
        values = np.array(read_bytes(path).decode("ascii").replace(",", " ").split(), np.float64)
    except (UnicodeDecodeError, ValueError):
        values = np.empty(0)
    return check_homography(values, path)


def check_homography(values: object, source: PathLike) -> Array:
    """Convert nine finite numbers to an invertible 3×3 matrix; `source` names them in an error."""
    try:
        matrix = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        matrix = np.empty(0)
    if matrix.size != 9 or not np.isfinite(matrix).all():
        raise InputError(f"{source}: a homography must have nine finite numbers, in rows of three")
    matrix = matrix.reshape(3, 3)
    with np.errstate(all="ignore"):
        size = abs(np.linalg.det(matrix))
    if not 1e-12 <= size < MAX_VALUE or abs(matrix[2, 2]) < 1e-12 or np.abs(matrix).max() > MAX_VALUE:
        raise InputError(f"{source}: the homography cannot be inverted")
    return matrix
