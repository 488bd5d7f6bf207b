"""ETH3D, low-resolution many-view: frames of a hand-held rig; 3-D points visible in two frames are the ground truth."""

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Literal

from ...utils.arrays import Array
from ...utils.checks import check_choice, check_count
from ...utils.files import PathLike
from ..io import read_image
from .colmap import View, correspondences, model_folder, read_intrinsics, read_views, relative
from .layout import Layout
from .pair import Cameras, Item, Pair, PairDataset

WHERE = "https://www.eth3d.net/datasets (low-res many-view, training and test, rig_undistorted)"
INTERVALS = (3, 5, 7, 9, 11, 13, 15)


def eth3d(
    root: PathLike,
    *,
    interval: int = 3,
    every: int = 5,
    min_points: int = 1,
    cameras: Literal["same", "across"] = "same",
) -> PairDataset:
    """Pairs of frames of the same camera, or of two cameras of the rig at the same time.

    Expects `SEQUENCE/images/…` and `SEQUENCE/rig_calibration_undistorted/{cameras,images,points3D}.txt`, at any depth
    below `root`. The earlier frame is the reference; pairs are grouped by sequence.

    Args:
        root: the folder of sequences.
        interval: frames from reference to query; the paper uses 3, 5, … 15.
        every: frames from one reference to the next.
        min_points: pairs with fewer common points are left out.
        cameras: `"across"` pairs the images of one moment of the rig: that of the narrowest field of view is the
            reference, that of the widest the query. `interval` has no meaning then.
    """
    check_choice("cameras", cameras, ("same", "across"))
    for name, value in (("interval", interval), ("every", every), ("min_points", min_points)):
        check_count(name, value, minimum=1)
    layout = Layout(
        "ETH3D", root, inside="**/rig_calibration*/images.txt", names=("ETH3D", "ETH3D_data", "eth3d"), where=WHERE
    )
    found = [path for path in layout.some("**/rig_calibration*/images.txt") if model_folder(path.parents[1])]
    items: list[Item] = []
    for sequence in sorted({path.parents[1] for path in found}):
        views, intrinsics = _model(layout, sequence)
        pairs = _in_time(views, interval, every) if cameras == "same" else _across(views, intrinsics, every)
        suffix = str(interval) if cameras == "same" else "across"
        items += _items(sequence, pairs, intrinsics, min_points, suffix)
    if not items:
        wanted = f"frames {interval} apart" if cameras == "same" else "images of two cameras"
        raise layout.missing(f"any pair of {wanted} with {min_points} common points")
    return PairDataset(f"eth3d-{interval}" if cameras == "same" else "eth3d-cameras", items)


def _model(layout: Layout, sequence: Path) -> tuple[list[View], dict[int, Array]]:
    model = model_folder(sequence)
    assert model is not None  # it was found before
    if not (model / "cameras.txt").is_file():
        raise layout.missing("cameras.txt", model)
    return _views(model / "images.txt"), read_intrinsics(model / "cameras.txt")


def _in_time(views: list[View], interval: int, every: int) -> Iterator[tuple[View, View]]:
    """Frames of the same camera, `interval` apart."""
    for _, frames in groupby(views, key=lambda view: (view.camera, PurePosixPath(view.name).parent)):
        ordered = list(frames)
        yield from zip(ordered[::every], ordered[interval::every], strict=False)


def _across(views: list[View], intrinsics: dict[int, Array], every: int) -> Iterator[tuple[View, View]]:
    """Images of one moment, which have the same file name: the narrowest field of view → the widest."""

    def narrowness(view: View) -> float:
        matrix = intrinsics[view.camera]
        return float(matrix[0, 0] / matrix[0, 2])  # focal length over half the width

    known = sorted(
        (view for view in views if view.camera in intrinsics), key=lambda view: PurePosixPath(view.name).name
    )
    moments = [list(same) for _, same in groupby(known, key=lambda view: PurePosixPath(view.name).name)]
    for moment in [views for views in moments if len(views) > 1][::every]:
        ordered = sorted(moment, key=lambda view: (narrowness(view), view.name))
        yield ordered[-1], ordered[0]


def _items(
    sequence: Path, pairs: Iterable[tuple[View, View]], intrinsics: dict[int, Array], min_points: int, suffix: str
) -> list[Item]:
    items = []
    for reference, query in pairs:
        points = correspondences(reference, query)
        if len(points) < min_points:
            continue
        name = f"{sequence.name}_{reference.camera}_{PurePosixPath(reference.name).stem}_{suffix}"
        first, second = (sequence / "images" / view.name for view in (reference, query))
        read = partial(_read, name, sequence.name, first, second, points, relative(reference, query, intrinsics))
        items.append(Item(name, read, sequence.name))
    return items


@lru_cache(maxsize=16)  # seven intervals read the same ten sequences
def _views(path: Path) -> list[View]:
    return sorted(read_views(path), key=lambda view: (view.camera, view.name))


def _read(name: str, group: str, reference: Path, query: Path, points: Array, cameras: Cameras | None) -> Pair:
    return Pair(name, read_image(reference), read_image(query), points=points, cameras=cameras, group=group)
