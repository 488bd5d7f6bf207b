"""Data sets of image pairs with ground truth, read from their public folder layouts."""

from .eth3d import eth3d
from .flow_sets import flyingchairs, flyingthings3d, hd1k, kitti2012, kitti2015, middlebury, sintel, stereo
from .hpatches import hpatches
from .layout import MissingDataError
from .manifest import manifest
from .megadepth import megadepth
from .pair import Cameras, Pair, PairDataset, homography_flow, homography_pair
from .registry import DATASETS, open_dataset
from .tss import tss

__all__ = [
    "DATASETS",
    "Cameras",
    "MissingDataError",
    "Pair",
    "PairDataset",
    "eth3d",
    "flyingchairs",
    "flyingthings3d",
    "hd1k",
    "homography_flow",
    "homography_pair",
    "hpatches",
    "kitti2012",
    "kitti2015",
    "manifest",
    "megadepth",
    "middlebury",
    "open_dataset",
    "sintel",
    "stereo",
    "tss",
]
