"""Synthetic training pairs: photos warped by random motions, with exact flow."""

from .batch import PairBatch
from .objects import ObjectStore
from .pairs import SyntheticPairs
from .photos import PhotoStore
from .presets import PRESETS, get_preset
from .settings import Colour, Crop, Motion, Objects, Preset
from .sources import SkippedFilesWarning

__all__ = [
    "PRESETS",
    "Colour",
    "Crop",
    "Motion",
    "ObjectStore",
    "Objects",
    "PairBatch",
    "PhotoStore",
    "Preset",
    "SkippedFilesWarning",
    "SyntheticPairs",
    "get_preset",
]
