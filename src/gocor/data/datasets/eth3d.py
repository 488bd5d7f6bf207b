"""ETH3D, low-resolution many-view: frames of a hand-held rig, ground truth by the 3-D points that two frames share."""

from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path, PurePosixPath

from ...utils.errors import InputError
from ...utils.files import PathLike
from ..io import read_image
from .colmap import View, correspondences, model_folder, read_intrinsics, read_views, relative
from .layout import Layout
from .pair import Cameras, Item, Pair, PairDataset, Points

WHERE = "https://www.eth3d.net/datasets (low-res many-view, training and test, rig_undistorted)"
INTERVALS = (3, 5, 7, 9, 11, 13, 15)


def eth3d(root: PathLike, *, interval: int = 3, every: int = 5, min_points: int = 1) -> PairDataset:
    """Pairs of frames of one camera, `interval` frames apart, one for `every` frames.

    Folders `SEQUENCE/images/…` and `SEQUENCE/rig_calibration_undistorted/{cameras,images,points3D}.txt`, below `root`
    or below `multi_view_training_rig` and the like. The earlier frame is the reference; pairs are grouped by sequence.

    Args:
        root: the folder of sequences.
        interval: frames between reference and query; the paper has 3, 5, … 15.
        every: frames between one reference and the next.
        min_points: leave out pairs that share fewer points.
    """
    for name, value in (("interval", interval), ("every", every), ("min_points", min_points)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    layout = Layout(
        "ETH3D", root, inside="**/rig_calibration*/images.txt", names=("ETH3D", "ETH3D_data", "eth3d"), where=WHERE
    )
    found = layout.some("**/rig_calibration*/images.txt")
    items: list[Item] = []
    for sequence in sorted({path.parents[1] for path in found}):
        items += _sequence(layout, sequence, interval, every, min_points)
    if not items:
        raise layout.missing(f"any pair of frames {interval} apart that share {min_points} points")
    return PairDataset(f"eth3d-{interval}", items)


def _sequence(layout: Layout, sequence: Path, interval: int, every: int, min_points: int) -> list[Item]:
    model = model_folder(sequence)
    assert model is not None  # that is how the sequence was found
    if not (model / "cameras.txt").is_file():
        raise layout.missing("cameras.txt", model)
    views, intrinsics = _views(model / "images.txt"), read_intrinsics(model / "cameras.txt")
    items = []
    for camera, frames in groupby(views, key=lambda view: (view.camera, PurePosixPath(view.name).parent)):
        ordered = list(frames)
        for reference, query in zip(ordered[::every], ordered[interval::every], strict=False):
            points = correspondences(reference, query)
            if len(points) < min_points:
                continue
            stem = PurePosixPath(reference.name).stem
            name = f"{sequence.name}_{camera[0]}_{stem}_{interval}"
            read = partial(
                _read,
                name,
                sequence.name,
                sequence / "images" / reference.name,
                sequence / "images" / query.name,
                points,
                relative(reference, query, intrinsics),
            )
            items.append(Item(name, read, sequence.name))
    return items


@lru_cache(maxsize=16)  # of ten sequences, for each of seven intervals
def _views(path: Path) -> list[View]:
    return sorted(read_views(path), key=lambda view: (view.camera, view.name))


def _read(name: str, group: str, reference: Path, query: Path, points: Points, cameras: Cameras | None) -> Pair:
    return Pair(name, read_image(reference), read_image(query), points=points, cameras=cameras, group=group)
