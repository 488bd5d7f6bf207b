"""Metrics of a flow against its ground truth.

A pair is reduced to sums over its points. Means over the points of a pair, over pairs, and over all points of a data
set are all computed from these sums.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.datasets import Pair
from ..ops.sampling import is_inside, sample_flow
from ..utils.arrays import Array, Mask
from ..utils.checks import check_choice
from ..utils.errors import InputError

Sums = dict[str, float]
Rounding = Literal["none", "read", "move"]

THRESHOLDS = (1, 2, 3, 5, 8, 10, 13, 22, 36)  # Thresholds of PCK in pixels, including MegaDepth's.
SPEEDS = {"s0-10": (0, 10), "s10-40": (10, 40), "s40+": (40, np.inf)}  # Lengths of the true flow in pixels.
BOUNDARIES = {"d0-10": (0, 10), "d10-60": (10, 60), "d60-140": (60, 140)}  # Distances from a boundary in pixels.


class Errors(NamedTuple):
    """End-point errors of the scored points; N rows each.

    Attributes:
        error: end-point errors.
        length: lengths of the true flow.
        start: the points, as in `Truth`.
        occluded: the points that are occluded, as in `Truth`.
        inside: the points whose true target lies in the query.
    """

    error: Array
    length: Array
    start: Array
    occluded: Mask | None
    inside: Mask


def endpoint_errors(
    pair: Pair,
    flow: NDArray[Any],
    *,
    inside_only: bool = True,
    rounding: Rounding = "none",
    scale: tuple[float, float] = (1.0, 1.0),
) -> Errors:
    """End-point errors of a flow.

    Args:
        pair: the ground truth.
        flow: the estimate `(H, W, 2)`. The error of a vector that is not finite is the query's diagonal.
        inside_only: score only points whose true target lies in the query, `[0, Wq-1] × [0, Hq-1]`.
        rounding: for sparse points: `"none"` interpolates the estimate at the point, `"read"` reads it at the nearest
            pixel, and `"move"` moves the point to the nearest pixel but not its target.
        scale: factors of the errors in x and y, to measure them in other pixels than the query's own.

    Returns:
        Errors in pixels of the query times the scale, float64.
    """
    expected = (*pair.reference.shape[:2], 2)
    if tuple(flow.shape) != expected:
        raise InputError(f"{pair.name}: the flow must have shape {expected}, got {tuple(flow.shape)}")
    check_choice("rounding", rounding, ("none", "read", "move"))
    start, end, occluded = pair.truth()
    height, width = pair.query.shape[:2]
    if rounding == "move" and pair.points is not None:
        start = np.rint(start)
    inside = is_inside(end, pair.query.shape)
    if inside_only:
        start, end = start[inside], end[inside]
        occluded = None if occluded is None else occluded[inside]
        inside = inside[inside]
    if pair.points is None:
        column, row = start.astype(np.intp).T
        estimate = flow[row, column].astype(np.float64)
    else:
        estimate = sample_flow(flow, np.rint(start) if rounding == "read" else start)
    with np.errstate(invalid="ignore"):
        error = np.linalg.norm((start + estimate - end) * scale, axis=1)
    error = np.where(np.isfinite(error), error, np.hypot(width * scale[0], height * scale[1]))
    return Errors(error, np.linalg.norm(end - start, axis=1), start, occluded, inside)


def sums(error: Array, length: Array, *, limit: float | None = None) -> Sums:
    """Sums over the points of a pair.

    Args:
        error: end-point errors `(N,)`.
        length: lengths of the true flow `(N,)`.
        limit: PCK-α's threshold of this pair, α·L.

    Returns:
        The number of points `n`; the sums of the error and of its square, `error` and `square`; the numbers of points
        with an error of at most T pixels, `pck-T`, of more than 3 pixels and 5 % of the flow's length, `fl`, and of at
        most the limit, `within`.
    """
    counts = {
        "n": float(error.size),
        "error": float(error.sum()),
        "square": float((error * error).sum()),
        **{f"pck-{t}": float((error <= t).sum()) for t in THRESHOLDS},
        "fl": float(((error > 3) & (error > 0.05 * length)).sum()),
    }
    return counts if limit is None else counts | {"within": float((error <= limit).sum())}


def add(parts: Sequence[Mapping[str, float]]) -> Sums:
    """Sums over several sets of points."""
    return {key: float(sum(part[key] for part in parts)) for key in parts[0]} if parts else {}


def ratios(total: Mapping[str, float]) -> dict[str, float]:
    """Means: `aepe` and its standard deviation `std` in pixels; `pck-T`, `fl` and `pck-alpha` as fractions."""
    count = total["n"]
    mean = total["error"] / count
    shares = {key: total[key] / count for key in total if key.startswith("pck-") or key == "fl"}
    if "within" in total:
        shares["pck-alpha"] = total["within"] / count
    return {"aepe": mean, "std": max(0.0, total["square"] / count - mean * mean) ** 0.5, **shares}


def regions(pair: Pair, errors: Errors, *, detailed: bool = False) -> dict[str, Mask]:
    """Masks `(N,)` of the scored points in each region that has any.

    Regions are `noc` (matched) and `occ` (unmatched) where occlusions are known. If `detailed`, also by the length of
    the true flow (`SPEEDS`) and, for dense ground truth, by the distance from the nearest boundary (`BOUNDARIES`).
    """
    found: dict[str, Mask] = {}
    if errors.occluded is not None:
        found |= {"noc": ~errors.occluded, "occ": errors.occluded}
    if detailed:
        found |= {name: (errors.length >= low) & (errors.length < high) for name, (low, high) in SPEEDS.items()}
        if pair.flow is not None:
            column, row = errors.start.astype(np.intp).T
            distance = boundary_distance(pair)[row, column]
            found |= {name: (distance >= low) & (distance < high) for name, (low, high) in BOUNDARIES.items()}
    return {name: mask for name, mask in found.items() if mask.any()}


def boundary_distance(pair: Pair) -> NDArray[np.float32]:
    """Distance in pixels of every pixel from the nearest boundary, `(H, W)`; infinite if there is no boundary.

    Boundaries are the edges of the occlusion mask, as in Sintel's tables. Without such a mask they are the motion
    boundaries, `‖∇u‖² + ‖∇v‖² > 0.01(u² + v²) + 0.002` (Sundaram et al., ECCV 2010).
    """
    import cv2

    if pair.flow is None or pair.valid is None:
        raise InputError(f"{pair.name}: boundaries need a dense flow")
    edge = np.zeros(pair.valid.shape, np.bool_)
    if pair.occluded is not None:
        edge[:, 1:] |= pair.occluded[:, 1:] != pair.occluded[:, :-1]
        edge[1:] |= pair.occluded[1:] != pair.occluded[:-1]
    else:
        flow = pair.flow.astype(np.float64)
        change = np.zeros(pair.valid.shape)
        both_x, both_y = pair.valid[:, 1:] & pair.valid[:, :-1], pair.valid[1:] & pair.valid[:-1]
        change[:, 1:] += both_x * ((flow[:, 1:] - flow[:, :-1]) ** 2).sum(2)
        change[1:] += both_y * ((flow[1:] - flow[:-1]) ** 2).sum(2)
        edge = pair.valid & (change > 0.01 * (flow**2).sum(2) + 0.002)
    if not edge.any():
        return np.full(edge.shape, np.inf, np.float32)
    return np.asarray(cv2.distanceTransform((~edge).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE), np.float32)
