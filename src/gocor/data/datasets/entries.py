"""Data sets as they are given on a command line: `NAME:OPTION=VALUE,…=FOLDER`."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...utils.errors import InputError
from ...utils.files import PathLike
from ...utils.options import convert, nearest
from .pair import PairDataset
from .registry import DATASETS, open_dataset

ENTRY = re.compile(r"(?P<name>[\w-]+)(?::(?P<options>\w+=[\w.-]+(?:,\w+=[\w.-]+)*))?(?:=(?P<folder>.+))?")
SHORT_NAMES = {"chairs": "flyingchairs", "things": "flyingthings3d"}
SHORT_OPTIONS = {"pass": "render", "side": "camera"}  # `pass` is no name of an argument in Python
SHORT_VALUES = {
    ("direction", "forward"): "into_future",
    ("direction", "backward"): "into_past",
    ("split", "train"): "TRAIN",
    ("split", "test"): "TEST",
}
SHARE = "share"


@dataclass(frozen=True)
class DatasetEntry:
    """A data set with its options and its folder.

    Attributes:
        label: the entry without its folder, which stands for it in logs.
        name: name of the reader, one of `DATASETS`.
        folder: folder of the data set.
        options: options of the reader.
        share: its part of the training pairs, relative to other entries; `None` if the entry gives none.
    """

    label: str
    name: str
    folder: str
    options: Mapping[str, Any] = field(default_factory=dict)
    share: float | None = None

    def open(self) -> PairDataset:
        """The pairs of the data set."""
        return open_dataset(self.name, self.folder, **self.options)


def parse_entry(text: str, root: PathLike | None = None) -> DatasetEntry:
    """Parse `NAME=FOLDER`, `NAME:OPTION=VALUE,…=FOLDER`, or the same without a folder.

    Args:
        text: the entry. Options are those of the reader, and `share`. Some have short names: data sets `chairs` and
            `things`; options `pass` (render) and `side` (camera); directions `forward` and `backward`.
        root: folder that contains the data sets of entries without a folder.
    """
    found = ENTRY.fullmatch(text)
    if found is None:
        raise InputError(f"a data set is given as NAME=FOLDER or NAME:OPTION=VALUE,…=FOLDER, got {text!r}")
    name = SHORT_NAMES.get(found["name"], found["name"])
    if name not in DATASETS:
        raise InputError(f"no data set is named {name!r}; {nearest(name, [*DATASETS, *SHORT_NAMES])}")
    folder = found["folder"] or root
    if folder is None:
        raise InputError(f"{text} has no folder: write {text}=FOLDER, or set flow_root to the folder of all data sets")
    pairs = dict(item.split("=") for item in (found["options"] or "").split(",") if item)
    share = _share(text, pairs.pop(SHARE, None))
    options = dict(_option(name, key, value) for key, value in pairs.items())
    label = found["name"] + (f":{found['options']}" if found["options"] else "")
    return DatasetEntry(label, name, str(Path(folder)), options, share)


def parse_entries(texts: Sequence[str], root: PathLike | None = None) -> list[DatasetEntry]:
    """Several entries. The same data set may come twice, with other options or another folder."""
    entries = [parse_entry(text, root) for text in texts]
    known = [(entry.name, entry.folder, tuple(sorted(entry.options.items()))) for entry in entries]
    for place, entry in enumerate(entries):
        if known.index(known[place]) < place:
            raise InputError(f"{entry.label} of {entry.folder} is given twice")
    given = [entry.share is not None for entry in entries]
    if any(given) and not all(given):
        raise InputError(f"give a share to every data set or to none, {entries[given.index(False)].label} has none")
    return entries


def _option(name: str, key: str, value: str) -> tuple[str, Any]:
    """An option of a reader with its type."""
    parameters = inspect.signature(DATASETS[name]).parameters
    option = SHORT_OPTIONS.get(key, key)
    if option not in parameters or option == "root":
        known = [other for other in parameters if other != "root"]
        raise InputError(f"{name} has no option {key!r}; {nearest(key, [*known, SHARE])}")
    hint, given = parameters[option].annotation, value
    allowed = getattr(hint, "__args__", ())
    short = SHORT_VALUES.get((option, value), value)
    if short in allowed:
        given = short
    if hint is int:
        try:
            return option, int(given)
        except ValueError:
            raise InputError(f"{name}: {key} must be an integer, got {value!r}") from None
    return option, convert(f"{name}: {key}", given, hint)


def _share(text: str, value: str | None) -> float | None:
    try:
        share = None if value is None else float(value)
    except ValueError:
        share = 0.0
    if share is not None and not share > 0:
        raise InputError(f"{text}: share must be a positive number, got {value!r}")
    return share
