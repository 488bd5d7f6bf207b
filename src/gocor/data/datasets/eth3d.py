"""ETH3D, low-resolution many-view: frames of a hand-held rig; 3-D points visible in two frames are the ground truth."""

from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path, PurePosixPath

from ...utils.arrays import Array
from ...utils.checks import check_count
from ...utils.files import PathLike
from ..io import read_image
from .colmap import View, correspondences, model_folder, read_intrinsics, read_views, relative
from .layout import Layout
from .pair import Cameras, Item, Pair, PairDataset

WHERE = "https://www.eth3d.net/datasets (low-res many-view, training and test, rig_undistorted)"
INTERVALS = (3, 5, 7, 9, 11, 13, 15)


def eth3d(root: PathLike, *, interval: int = 3, every: int = 5, min_points: int = 1) -> PairDataset:
    """Pairs of frames of the same camera.

    Expects `SEQUENCE/images/…` and `SEQUENCE/rig_calibration_undistorted/{cameras,images,points3D}.txt`, at any depth
    below `root`. The earlier frame is the reference; pairs are grouped by sequence.

    Args:
        root: the folder of sequences.
        interval: frames from reference to query; the paper uses 3, 5, … 15.
        every: frames from one reference to the next.
        min_points: pairs with fewer common points are left out.
    """
    for name, value in (("interval", interval), ("every", every), ("min_points", min_points)):
        check_count(name, value, minimum=1)
    layout = Layout(
        "ETH3D", root, inside="**/rig_calibration*/images.txt", names=("ETH3D", "ETH3D_data", "eth3d"), where=WHERE
    )
    found = [path for path in layout.some("**/rig_calibration*/images.txt") if model_folder(path.parents[1])]
    items: list[Item] = []
    for sequence in sorted({path.parents[1] for path in found}):
        items += _sequence(layout, sequence, interval, every, min_points)
    if not items:
        raise layout.missing(f"any pair of frames {interval} apart with {min_points} common points")
    return PairDataset(f"eth3d-{interval}", items)


def _sequence(layout: Layout, sequence: Path, interval: int, every: int, min_points: int) -> list[Item]:
    model = model_folder(sequence)
    assert model is not None  # it was found before
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


@lru_cache(maxsize=16)  # seven intervals read the same ten sequences
def _views(path: Path) -> list[View]:
    return sorted(read_views(path), key=lambda view: (view.camera, view.name))


def _read(name: str, group: str, reference: Path, query: Path, points: Array, cameras: Cameras | None) -> Pair:
    return Pair(name, read_image(reference), read_image(query), points=points, cameras=cameras, group=group)
