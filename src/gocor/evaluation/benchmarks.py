"""Benchmarks by name: data sets with their protocols."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..data.datasets import MissingDataError, PairDataset, open_dataset
from ..data.datasets.eth3d import INTERVALS
from ..utils.checks import check_choice
from ..utils.errors import InputError
from ..utils.files import PathLike
from . import protocols as p

Rules = Literal["paper", "text", "inside"]
RULES = ("paper", "text", "inside")


class Benchmark(NamedTuple):
    """A data set and the protocol that scores it."""

    dataset: PairDataset
    protocol: p.Protocol


class Entry(NamedTuple):
    """A data set's reader with its options, and its protocols; that of the rules `"inside"` is always `INSIDE`."""

    reader: str
    options: dict[str, Any]
    paper: p.Protocol
    text: p.Protocol | None = None  # Protocol of the paper's text, if that disagrees with its numbers.
    inside_options: dict[str, Any] | None = None  # Options of the reader that differ under the rules "inside".


FIRST = {"reference": "first"}
ENTRIES: dict[str, Entry] = {
    "hpatches": Entry("hpatches", {}, p.HPATCHES, None, FIRST),
    "hpatches-240": Entry("hpatches", {}, p.HPATCHES_240, None, FIRST),
    "hpatches-i": Entry("hpatches", {"split": "i"}, p.HPATCHES, None, FIRST),
    **{f"eth3d-{interval}": Entry("eth3d", {"interval": interval}, p.ETH3D) for interval in INTERVALS},
    "eth3d-cameras": Entry("eth3d", {"cameras": "across"}, p.ETH3D),
    "megadepth": Entry("megadepth", {}, p.MEGADEPTH),
    "kitti2012": Entry("kitti2012", {}, p.KITTI),
    "kitti2015": Entry("kitti2015", {}, p.KITTI),
    "sintel-clean": Entry("sintel", {"render": "clean"}, p.SINTEL, p.SINTEL_TEXT),
    "sintel-final": Entry("sintel", {"render": "final"}, p.SINTEL, p.SINTEL_TEXT),
    "tss": Entry("tss", {}, p.TSS),
    "middlebury": Entry("middlebury", {}, p.FLOW),
    "stereo": Entry("stereo", {}, p.FLOW),
    "flyingchairs": Entry("flyingchairs", {"split": "val"}, p.FLOW, None, {"split": "all"}),
    "flyingthings3d": Entry("flyingthings3d", {"split": "TEST"}, p.FLOW),
    "hd1k": Entry("hd1k", {}, p.FLOW),
    "manifest": Entry("manifest", {}, p.INSIDE),
}
SEVERAL = {
    "eth3d": tuple(f"eth3d-{interval}" for interval in INTERVALS),
    "kitti": ("kitti2012", "kitti2015"),
    "sintel": ("sintel-clean", "sintel-final"),
}

# The data sets of `dev` by their name in tables: folder, reader, options of the reader.
DEV: dict[str, tuple[str, str, dict[str, Any]]] = {
    "hpatches_v": ("hpatches", "hpatches", {"split": "v", "reference": "first"}),
    "hpatches_i": ("hpatches", "hpatches", {"split": "i", "reference": "first"}),
    "middlebury": ("middlebury", "middlebury", {}),
    "sintel_clean": ("sintel", "sintel", {"render": "clean"}),
    "sintel_final": ("sintel", "sintel", {"render": "final"}),
    "kitti2012": ("kitti2012", "kitti2012", {}),
    "kitti2015": ("kitti2015", "kitti2015", {}),
    "flyingchairs": ("flyingchairs", "flyingchairs", {}),
    "stereo": ("stereo", "stereo", {}),
}
NAMES = ("dev", *SEVERAL, *ENTRIES)


def open_benchmark(
    name: str,
    root: PathLike,
    *,
    rules: Rules | None = None,
    geometry: bool = False,
    calibration: bool = False,
    limit: int | None = None,
) -> dict[str, Benchmark]:
    """The data sets of a benchmark, by name.

    Args:
        name: one of `NAMES`. `dev` stands for all data sets found in a folder, each in its own subfolder; `eth3d`,
            `kitti` and `sintel` stand for several.
        root: folder of the data set; for `manifest`, the file.
        rules: `"paper"`, the protocol behind the paper's numbers; `"text"`, that of the paper's text, which averages
            Sintel's AEPE and PCK over images, not over all pixels; `"inside"`, original images, points whose target
            lies in the query, mean over pairs. The default is `"paper"`; `dev` and `manifest` only have `"inside"`.
        geometry: also estimate homographies and poses from the flow, if their ground truth is known.
        calibration: also compare the confidence of each match with its error, see `calibration`.
        limit: largest number of pairs of each data set, evenly spaced.
    """
    if rules is not None:
        check_choice("rules", rules, RULES)
    if name in ("dev", "manifest") and rules not in (None, "inside"):
        raise InputError(f"{name} is no data set of the paper: its only rules are 'inside', got {rules!r}")
    if name == "dev":
        opened = _dev(root)
    elif name in SEVERAL or name in ENTRIES:
        opened = {key: _one(key, root, rules or "paper") for key in SEVERAL.get(name, (name,))}
    else:
        raise InputError(f"no benchmark is named {name!r}; there are {', '.join(NAMES)}")
    return {
        key: Benchmark(
            data if limit is None else data.spread(limit), replace(protocol, geometry=geometry, calibration=calibration)
        )
        for key, (data, protocol) in opened.items()
    }


def _one(name: str, root: PathLike, rules: Rules) -> Benchmark:
    entry = ENTRIES[name]
    if rules == "inside":
        options = entry.options | (entry.inside_options or {})
        return Benchmark(open_dataset(entry.reader, root, **options), p.INSIDE)
    protocol = entry.text if rules == "text" and entry.text is not None else entry.paper
    return Benchmark(open_dataset(entry.reader, root, **entry.options), protocol)


def _dev(root: PathLike) -> dict[str, Benchmark]:
    folder = Path(root)
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is not a folder: dev expects a folder with one subfolder for each data set")
    present = {key: value for key, value in DEV.items() if (folder / value[0]).is_dir()}
    if not present:
        places = ", ".join(dict.fromkeys(place for place, _, _ in DEV.values()))
        raise MissingDataError(f"{folder} holds none of the folders that dev scores: {places}")
    return {
        key: Benchmark(open_dataset(reader, folder / place, **options), p.INSIDE)
        for key, (place, reader, options) in present.items()
    }
