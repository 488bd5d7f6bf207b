"""Protocols of the data sets: how images are prepared, which points count, and how metrics are averaged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..data.datasets import Pair
from ..utils.errors import InputError
from .calibration import calibration_row, summarise_calibration
from .estimates import Estimate
from .geometry import HOMOGRAPHY_THRESHOLDS, POSE_THRESHOLDS, auc, homography_error, relative_pose_error
from .metrics import Rounding, Sums, add, endpoint_errors, ratios, regions, sums
from .transforms import pad_to_common_size, resize_by_short_side, resize_homography_pair

Average = Literal["pair", "pooled", "group"]
Row = dict[str, Any]


def as_it_is(pair: Pair) -> Pair:
    """The pair itself."""
    return pair


@dataclass(frozen=True)
class Protocol:
    """How a data set is scored.

    Attributes:
        name: name in reports.
        prepare: resizes or pads a pair before it is matched.
        inside_only: whether only points whose true target lies in the query count.
        rounding: rounding of sparse points, see `endpoint_errors`.
        detailed: whether errors are also measured by speed and by distance from boundaries.
        alpha: α of PCK-α, whose threshold is α times the longer side of the original query.
        metrics: metrics that tables show.
        average: how each metric is averaged: `"pair"` (the default) over the points of a pair, then over pairs;
            `"group"` over pairs, then over groups; `"pooled"` over all points of the data set.
        flips: whether a network may mirror images.
        geometry: whether homographies and poses are estimated from the flow, if their ground truth is known.
        calibration: whether the confidence of each match is compared with its error, for matchers that give one.
        enlarge: whether a network may enlarge small images, unless the options say how. The paper's do not.
    """

    name: str
    prepare: Callable[[Pair], Pair] = as_it_is
    inside_only: bool = True
    rounding: Rounding = "none"
    detailed: bool = False
    alpha: float | None = None
    metrics: tuple[str, ...] = ("aepe", "pck-1", "pck-5")
    average: Mapping[str, Average] = field(default_factory=dict)
    flips: bool = False
    geometry: bool = False
    calibration: bool = False
    enlarge: bool = True


def to_reference_size(pair: Pair) -> Pair:
    """Resize the query to the reference's size (HPatches)."""
    return resize_homography_pair(pair, (pair.reference.shape[0], pair.reference.shape[1]))


def to_240(pair: Pair) -> Pair:
    """Resize both images to 240×240 (HPatches)."""
    return resize_homography_pair(pair, (240, 240))


def megadepth_images(pair: Pair) -> Pair:
    """Resize shorter sides to 480 and all sides to multiples of 16, then pad both images to one size (MegaDepth)."""
    return pad_to_common_size(resize_by_short_side(pair, 480, 16))


INSIDE = Protocol("inside")
"""Original images, points whose target is inside the query, including occluded ones, mean over pairs."""

KITTI_AVERAGE: dict[str, Average] = {"fl": "pooled"}
POOLED: dict[str, Average] = {"aepe": "pooled", "pck-1": "pooled", "pck-3": "pooled", "pck-5": "pooled"}
GROUPED: dict[str, Average] = {"aepe": "group", "pck-1": "group", "pck-5": "group", "pck-alpha": "group"}

HPATCHES = Protocol("hpatches", enlarge=False, prepare=to_reference_size)
HPATCHES_240 = Protocol("hpatches-240", enlarge=False, prepare=to_240)
ETH3D = Protocol("eth3d", enlarge=False, inside_only=False, rounding="move", average=GROUPED)
MEGADEPTH = Protocol(
    "megadepth",
    megadepth_images,
    enlarge=False,
    inside_only=False,
    rounding="read",
    metrics=("pck-1", "pck-3", "pck-5"),
    average=POOLED,
)
KITTI = Protocol("kitti", enlarge=False, inside_only=False, metrics=("aepe", "fl"), average=KITTI_AVERAGE)
SINTEL = Protocol("sintel", enlarge=False, inside_only=False, detailed=True, average=POOLED)
SINTEL_TEXT = Protocol("sintel-text", enlarge=False, inside_only=False, detailed=True)
TSS = Protocol(
    "tss",
    pad_to_common_size,
    enlarge=False,
    inside_only=False,
    alpha=0.05,
    metrics=("pck-alpha",),
    average=GROUPED,
    flips=True,
)
FLOW = Protocol("flow", inside_only=False, metrics=("aepe", "pck-1", "fl"))


def score(protocol: Protocol, original: Pair, pair: Pair, found: NDArray[Any] | Estimate) -> Row | None:
    """Score one pair.

    Args:
        protocol: how to score.
        original: the pair before `protocol.prepare`.
        pair: the pair after it.
        found: the estimated flow `(H, W, 2)`, with or without its confidence.

    Returns:
        Name, group, sums over the points of each region, errors of homography and pose, and the calibration; `None` if
        no point counts.
    """
    flow = found.flow if isinstance(found, Estimate) else found
    errors = endpoint_errors(pair, flow, inside_only=protocol.inside_only, rounding=protocol.rounding)
    if not errors.error.size:
        return None
    limit = None if protocol.alpha is None else protocol.alpha * max(original.query.shape[:2])
    parts = {"all": sums(errors.error, errors.length, limit=limit)}
    for name, mask in regions(pair, errors, detailed=protocol.detailed).items():
        parts[name] = sums(errors.error[mask], errors.length[mask], limit=limit)
    row: Row = {"name": original.name, "group": original.group, "regions": parts}
    if protocol.geometry and pair.homography is not None:
        row["homography_error"] = _finite(homography_error(pair, flow))
    if protocol.geometry and pair.cameras is not None:
        row["pose_error"] = _finite(relative_pose_error(pair, flow))
    if protocol.calibration and isinstance(found, Estimate):
        row["calibration"] = calibration_row(pair, found, rounding=protocol.rounding)
    return row


def summarise(protocol: Protocol, rows: Sequence[Row]) -> dict[str, Any]:
    """Summarise the rows of a data set.

    Returns:
        `metrics`: those of the protocol. `pairs`, `points`, and `seconds`, the mean time of a pair. `regions`: for each
        region every metric in the averages `pair`, `group` and `pooled`. `groups`: means over the pairs of each group.
        `homography_auc` and `pose_auc`, if these were estimated, and what `summarise_calibration` returns.
    """
    if not rows:
        raise InputError("no pair has any point that counts")
    names = list(dict.fromkeys(name for row in rows for name in row["regions"]))
    summary: dict[str, Any] = {"regions": {name: _averages(rows, name) for name in names}}
    everything = summary["regions"]["all"]
    wanted = dict.fromkeys(protocol.metrics)
    summary["metrics"] = {key: everything[protocol.average.get(key, "pair")][key] for key in wanted}
    groups = dict.fromkeys(row["group"] for row in rows)
    if len(groups) > 1:
        parts = {group: [row for row in rows if row["group"] == group] for group in groups}
        summary["groups"] = {
            group: {"pairs": len(part), **_mean([ratios(row["regions"]["all"]) for row in part])}
            for group, part in parts.items()
        }
    summary |= {"pairs": len(rows), "points": everything["points"]}
    summary["seconds"] = float(np.mean([row["seconds"] for row in rows])) if "seconds" in rows[0] else None
    for key, thresholds in (("homography_error", HOMOGRAPHY_THRESHOLDS), ("pose_error", POSE_THRESHOLDS)):
        errors = [np.inf if row[key] is None else row[key] for row in rows if key in row]
        if errors:
            name = key.removesuffix("_error")
            summary[f"{name}_auc"] = {f"{threshold:g}": auc(errors, threshold) for threshold in thresholds}
    return summary | summarise_calibration(rows)


def _averages(rows: Sequence[Row], region: str) -> dict[str, Any]:
    parts: list[tuple[str, Sums]] = [(row["group"], row["regions"][region]) for row in rows if region in row["regions"]]
    total = add([part for _, part in parts])
    each = [(group, ratios(part)) for group, part in parts]
    groups = [_mean([values for name, values in each if name == group]) for group in dict.fromkeys(g for g, _ in each)]
    return {
        "pair": _mean([values for _, values in each]),
        "group": _mean(groups),
        "pooled": ratios(total),
        "pairs": len(parts),
        "points": int(total["n"]),
    }


def _mean(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([value[key] for value in values])) for key in values[0]}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None  # JSON has no infinity.
