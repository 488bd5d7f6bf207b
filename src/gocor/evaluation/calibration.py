"""Calibration: whether a share c of the matches with confidence c is right.

A pair is reduced to sums over the points of each bin of confidence. Every pair has the same weight.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.datasets import Pair
from ..models.outputs import RIGHT_WITHIN
from ..ops.sampling import sample_flow
from ..utils.arrays import Array, Mask
from ..utils.errors import InputError
from .estimates import Estimate
from .metrics import Rounding, endpoint_errors

BINS = 10  # bins of equal width, from 0 to 1
KINDS = ("confidence", "visibility")

Figures = dict[str, Any]


def calibration_row(pair: Pair, found: Estimate, *, rounding: Rounding = "none") -> Figures:
    """Compare the confidence and the visibility of each point with the ground truth.

    Confidence: points whose true target lies in the query. A match is right if it is at most `RIGHT_WITHIN` pixels off,
    in the pixels that the confidence refers to, and the point is not known to be occluded.

    Visibility: all points of pairs whose occlusions are known. A point is visible if its true target lies in the query
    and is not occluded.

    Args:
        pair: the ground truth.
        found: the estimate.
        rounding: rounding of sparse points, see `endpoint_errors`.

    Returns:
        What `compare` returns, for `confidence` and, if there is one and occlusions are known, for `visibility`.
        Those without points are left out.
    """
    errors = endpoint_errors(pair, found.flow, inside_only=False, rounding=rounding, scale=found.scale)
    at = np.rint(errors.start) if rounding == "read" and pair.points is not None else errors.start
    inside, occluded = errors.inside, errors.occluded
    right = inside & (errors.error <= RIGHT_WITHIN)
    if occluded is not None:
        right &= ~occluded
    row: Figures = {}
    if inside.any():
        confidence = _sample(pair, "confidence", found.confidence, at[inside])
        row["confidence"] = compare(confidence, right[inside], errors.error[inside]) | {"source": found.source}
    if found.visibility is not None and occluded is not None and occluded.size:
        visible = _sample(pair, "visibility", found.visibility, at)
        row["visibility"] = compare(visible, inside & ~occluded) | {"source": found.source}
    return row


def compare(probability: Array, truth: Mask, error: Array | None = None) -> Figures:
    """Compare the predicted probabilities `(N,)` of points with the truth.

    Returns:
        `bins`: for each bin of probability the number of points `n`, the sum of their probabilities `predicted`, and
        the number of points `true` for which the prediction is true. `auc`: see `roc_auc`. `ause`: see `ause`; only
        with errors.
    """
    index = np.minimum((probability * BINS).astype(np.intp), BINS - 1)
    counts = {"n": None, "predicted": probability, "true": truth.astype(np.float64)}
    bins = {key: np.bincount(index, weights, BINS).astype(np.float64).tolist() for key, weights in counts.items()}
    found: Figures = {"bins": bins, "auc": roc_auc(probability, truth)}
    return found if error is None else found | {"ause": ause(probability, error)}


def roc_auc(score: Array, truth: Mask) -> float | None:
    """Probability that a random true point has a higher score than a random false one; ties count half.

    1 is a perfect order and ½ a random one. `None` without points of both kinds.
    """
    _, index = np.unique(score, return_inverse=True)
    true, false = np.bincount(index, truth), np.bincount(index, ~truth)
    pairs = true.sum() * false.sum()
    if not pairs:
        return None
    lower = np.cumsum(false) - false
    return float((true * (lower + false / 2)).sum() / pairs)


def ause(score: Array, error: Array) -> float:
    """Area under the sparsification error curve (Ilg et al., ECCV 2018).

    Points are removed one by one, those of the lowest score first, and the mean error of the rest is divided by that of
    all points. The result is the mean difference between this curve and that of the best order, by the error itself.
    0 is the best order. Points of equal score are removed in random order, of which the mean is taken.
    """
    total = error.mean()
    if not total > 0:
        return 0.0
    _, index, counts = np.unique(-score, return_inverse=True, return_counts=True)
    expected = np.bincount(index, error) / counts  # mean error of each score, highest score first
    kept = np.arange(1, error.size + 1)
    curve, best = np.cumsum(np.repeat(expected, counts)) / kept, np.cumsum(np.sort(error)) / kept
    return float(((curve - best) / total).mean())


def summarise_calibration(rows: Sequence[Mapping[str, Any]]) -> Figures:
    """Calibration over pairs, which all have the same weight.

    Args:
        rows: those of `score`.

    Returns:
        `calibration`, with figures for `confidence` and `visibility` if there are any; or nothing. The figures are
        `source`; the numbers of `pairs` and `points`; the mean probability `predicted`, and the share of points that
        are `true`; the expected calibration error `ece`, Σ share·|predicted − true| over bins; means over pairs of
        `auc` (of the pairs that have one) and `ause`; and the `bins`, with bounds `low` and `high`, the `share` of
        points, and `predicted` and `true`, which are `None` in empty bins.
    """
    parts = {kind: [found[kind] for row in rows if kind in (found := row.get("calibration", {}))] for kind in KINDS}
    found = {kind: _summary(part) for kind, part in parts.items() if part}
    return {"calibration": found} if found else {}


def _summary(parts: Sequence[Figures]) -> Figures:
    shares = {key: np.zeros(BINS) for key in ("n", "predicted", "true")}
    for part in parts:
        count = sum(part["bins"]["n"])
        for key, total in shares.items():
            total += np.array(part["bins"][key]) / (count * len(parts))
    share, filled = shares["n"], np.maximum(shares["n"], 1e-300)
    predicted, true = shares["predicted"] / filled, shares["true"] / filled
    aucs, auses = ([part[key] for part in parts if part.get(key) is not None] for key in ("auc", "ause"))
    return {
        "source": parts[0]["source"],
        "pairs": len(parts),
        "points": int(sum(sum(part["bins"]["n"]) for part in parts)),
        "predicted": float(shares["predicted"].sum()),
        "true": float(shares["true"].sum()),
        "ece": float((share * np.abs(predicted - true)).sum()),
        "auc": float(np.mean(aucs)) if aucs else None,
        **({"ause": float(np.mean(auses))} if auses else {}),
        "bins": [
            {
                "low": i / BINS,
                "high": (i + 1) / BINS,
                "share": float(share[i]),
                "predicted": float(predicted[i]) if share[i] else None,
                "true": float(true[i]) if share[i] else None,
            }
            for i in range(BINS)
        ],
    }


def _sample(pair: Pair, name: str, values: NDArray[Any], points: Array) -> Array:
    """Values of a map of probabilities at points; those that are not finite count as 0."""
    expected = pair.reference.shape[:2]
    if tuple(values.shape) != expected:
        raise InputError(f"{pair.name}: the {name} must have shape {expected}, got {tuple(values.shape)}")
    values = np.where(np.isfinite(values), values, 0)
    if values.min() < 0 or values.max() > 1:
        raise InputError(f"{pair.name}: the {name} must be in [0, 1], got {values.min():g} to {values.max():g}")
    return np.clip(sample_flow(values[..., None], points)[:, 0], 0, 1)
