"""Data sets by name."""

import inspect
from collections.abc import Callable
from typing import Any

from ...utils.errors import InputError
from ...utils.files import PathLike
from .eth3d import eth3d
from .flow_sets import flyingchairs, flyingthings3d, hd1k, kitti2012, kitti2015, middlebury, sintel, stereo
from .hpatches import hpatches
from .manifest import manifest
from .megadepth import megadepth
from .pair import PairDataset
from .tss import tss

DATASETS: dict[str, Callable[..., PairDataset]] = {
    "eth3d": eth3d,
    "flyingchairs": flyingchairs,
    "flyingthings3d": flyingthings3d,
    "hd1k": hd1k,
    "hpatches": hpatches,
    "kitti2012": kitti2012,
    "kitti2015": kitti2015,
    "manifest": manifest,
    "megadepth": megadepth,
    "middlebury": middlebury,
    "sintel": sintel,
    "stereo": stereo,
    "tss": tss,
}


def open_dataset(name: str, root: PathLike, **options: Any) -> PairDataset:
    """Open a data set in its public folder layout.

    Args:
        name: one of `DATASETS`.
        root: the folder of the data set, or the folder that contains it; for `manifest`, the file.
        **options: options of the reader, see the functions of `gocor.data.datasets`.

    Returns:
        The pairs, each of which is read when it is accessed.

    Raises:
        MissingDataError: says what is missing and where to get it.
    """
    if name not in DATASETS:
        raise InputError(f"no data set is named {name!r}; there are {', '.join(DATASETS)}")
    known = [option for option in inspect.signature(DATASETS[name]).parameters if option != "root"]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise InputError(f"{name} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    return DATASETS[name](root, **options)
