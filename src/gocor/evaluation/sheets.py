"""Qualitative sheets: a pair, what two matchers make of it, and the matching confidence of one pixel per iteration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.datasets import Pair
from ..models.network import MatchingNetwork
from ..ops.warp import inside_mask, warp
from ..utils.files import PathLike, write_bytes_atomically
from ..viz import flow_scale, flow_to_color
from .baselines import Matcher, network_matcher
from .benchmarks import Benchmark
from .confidences import Confidences, confidences
from .contestants import Contestant
from .metrics import endpoint_errors
from .plots import figure, png

TRUE_MARK, WRONG_MARK = "#39ff14", "#00c8ff"
DRAWN = 320  # pixels of a panel, about


def choose_pixel(pair: Pair) -> tuple[float, float]:
    """A pixel `(x, y)` with a true match inside the query, not occluded if any is not: the nearest to the centre."""
    start, end, occluded = pair.truth()
    centre = (np.array(pair.reference.shape[1::-1]) - 1) / 2
    if not len(start):
        return float(centre[0]), float(centre[1])
    height, width = pair.query.shape[:2]
    good = np.asarray(((end >= 0) & (end <= (width - 1, height - 1))).all(1))
    if occluded is not None and (good & ~occluded).any():
        good &= ~occluded
    if not good.any():
        good = np.ones(len(start), np.bool_)
    best = np.argmin(((start - centre) ** 2).sum(1) + np.where(good, 0, np.inf))
    return float(start[best, 0]), float(start[best, 1])


def draw_sheet(
    pair: Pair,
    matchers: Mapping[str, Matcher | MatchingNetwork],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    pixel: tuple[float, float] | None = None,
) -> bytes:
    """A sheet as PNG.

    First row: reference, query, the query warped by each matcher, how far they differ. Second row: true flow, flows of
    the matchers and their errors. Last row, where a matcher has GOCor: confidences of the pixel, see `confidences`.

    Args:
        pair: images and ground truth.
        matchers: two, by name: usually one with plain correlation and one with GOCor.
        options: of networks, by name, see `network_matcher`.
        pixel: `(x, y)` in the reference; by default the one of `choose_pixel`.
    """
    if len(matchers) != 2:
        raise ValueError(f"a sheet compares two matchers, got {len(matchers)}")
    height, width = pair.reference.shape[:2]
    chosen = choose_pixel(pair) if pixel is None else pixel
    if not (0 <= chosen[0] <= width - 1 and 0 <= chosen[1] <= height - 1):
        raise ValueError(f"the pixel {chosen} is outside the reference, which has {width}×{height} pixels")
    flows = {
        name: (
            network_matcher(matcher, **(options or {}).get(name, {}))
            if isinstance(matcher, MatchingNetwork)
            else matcher
        )(pair.reference, pair.query)
        for name, matcher in matchers.items()
    }
    networks = [matcher for matcher in matchers.values() if isinstance(matcher, MatchingNetwork)]
    scores = next((found for net in reversed(networks) if (found := confidences(net, pair, chosen))), None)
    columns = max(5, len(scores.maps) if scores else 0)
    rows = 3 if scores else 2
    tall = 2.7 * min(height / width, 1.2) + 0.35
    made, panels = figure(columns, rows, 2.9 * columns, tall * rows + 0.4)
    for panel in panels.flat:
        panel.set(xticks=[], yticks=[])
        panel.grid(False)
        panel.spines[:].set_visible(False)
    _first_row(panels[0], pair, flows, chosen)
    _second_row(panels[1], pair, flows)
    if scores:
        _last_row(panels[2], pair, scores, _target(pair, chosen))
    for row, used in zip(panels, (5, 5, len(scores.maps) if scores else 0), strict=False):
        for panel in row[used:]:
            panel.set_visible(False)
    below = "; below, scores of ○ in the query, × the highest where it is elsewhere" if scores else ""
    made.suptitle(f"{pair.name}{below}", fontsize=12)
    return png(made)


def write_sheets(
    contestants: Sequence[Contestant],
    benchmarks: Mapping[str, Benchmark],
    folder: PathLike,
    *,
    count: int,
    pixel: tuple[float, float] | None = None,
) -> list[Path]:
    """Sheets of `count` pairs of each data set, evenly spread; returns their paths."""
    matchers = {contestant.label: contestant.make() for contestant in contestants}
    options = {contestant.label: contestant.options for contestant in contestants}
    place, files = Path(folder), []
    place.mkdir(parents=True, exist_ok=True)
    for name, (dataset, protocol) in benchmarks.items():
        for index, item in enumerate(dataset.spread(count).items):
            path = place / f"{name}-{index:03d}.png"
            sheet = draw_sheet(protocol.prepare(item.read()), matchers, options=options, pixel=pixel)
            write_bytes_atomically(path, sheet)
            files.append(path)
    return files


def _first_row(row: Any, pair: Pair, flows: Mapping[str, Any], pixel: tuple[float, float]) -> None:
    _show(row[0], pair.reference, "reference")
    _mark(row[0], pixel)
    _show(row[1], pair.query, "query")
    target = _target(pair, pixel)
    if target is not None:
        _mark(row[1], target)
    for panel, (name, flow) in zip(row[2:], flows.items(), strict=False):
        _show(panel, _warped(pair, flow), f"query warped, {name}")
    first, second = flows.values()
    apart = np.linalg.norm(first - second, axis=2)
    _heat(row[4], apart, "difference of the flows [px]")


def _second_row(row: Any, pair: Pair, flows: Mapping[str, Any]) -> None:
    shown = [np.asarray(flow).transpose(2, 0, 1) for flow in flows.values()]
    if pair.flow is not None and pair.valid is not None:
        truth = np.where(pair.valid[..., None], pair.flow, np.nan)
        scale = flow_scale(truth.transpose(2, 0, 1))
        shown_truth = _coarse(truth, mean=False).transpose(2, 0, 1)
        _show(row[0], flow_to_color(shown_truth, scale), f"true flow, up to {scale:.3g} px")
        errors = [np.linalg.norm(flow - pair.flow, axis=2) for flow in flows.values()]
        errors = [np.where(pair.valid, error, np.nan) for error in errors]
        worst = max(1.0, float(np.nanpercentile(np.stack(errors), 95)))
    else:
        scale = max(flow_scale(flow) for flow in shown)
        _show(row[0], pair.reference, "true points")
        assert pair.points is not None
        row[0].plot(pair.points[:, 0], pair.points[:, 1], ".", color=TRUE_MARK, markersize=3)
        errors, worst = [], 0.0
    for panel, name, flow in zip(row[1:3], flows, shown, strict=True):
        _show(panel, flow_to_color(flow, scale), f"flow, {name}")
    for index, name in enumerate(flows):
        mean = endpoint_errors(pair, flows[name]).error
        text = f"AEPE {mean.mean():.2f} px" if mean.size else "no point inside"
        if errors:
            _heat(row[3 + index], errors[index], f"error, {name}\n{text}", highest=worst, bar=index == 1)
        else:
            row[3 + index].text(0.5, 0.5, f"{name}\n{text}", ha="center", va="center")


def _last_row(row: Any, pair: Pair, scores: Confidences, target: tuple[float, float] | None) -> None:
    for panel, title, values in zip(row, scores.titles, scores.maps, strict=False):
        panel.imshow(
            np.maximum(values, 0), extent=scores.extent, cmap="inferno", vmin=0, interpolation="nearest", aspect="auto"
        )
        y, x = np.unravel_index(values.argmax(), values.shape)
        left, right, bottom, top = scores.extent
        peak = (
            left + (x + 0.5) * (right - left) / values.shape[1],
            top + (y + 0.5) * (bottom - top) / values.shape[0],
        )
        cell = max((right - left) / values.shape[1], (bottom - top) / values.shape[0])
        if target is not None:
            _mark(panel, target)
            if np.hypot(peak[0] - target[0], peak[1] - target[1]) > 1.5 * cell:
                panel.plot(*peak, "x", markersize=8, color=WRONG_MARK, markeredgewidth=2)
        panel.set(xlim=(left, right), ylim=(bottom, top))
        panel.set_title(title, fontsize=10)
        panel.set_aspect("equal")


def _target(pair: Pair, pixel: tuple[float, float]) -> tuple[float, float] | None:
    """Where the query shows a pixel, by the ground truth within a pixel of it."""
    start, end, _ = pair.truth()
    if not len(start):
        return None
    distance = ((start - np.array(pixel)) ** 2).sum(1)
    best = int(distance.argmin())
    return (float(end[best, 0]), float(end[best, 1])) if distance[best] <= 2 else None


def _warped(pair: Pair, flow: NDArray[np.float32]) -> NDArray[np.uint8]:
    query = torch.from_numpy(pair.query).permute(2, 0, 1)[None].float()
    field = torch.from_numpy(np.ascontiguousarray(flow.transpose(2, 0, 1)))[None]
    seen = inside_mask(field, pair.query.shape[:2])[0, 0].numpy()
    picture = warp(query, field)[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    return np.where(seen[..., None], picture, np.uint8(255))


def _show(panel: Any, picture: NDArray[np.uint8], title: str) -> None:
    panel.imshow(picture, interpolation="antialiased")
    panel.set_title(title, fontsize=10)


def _heat(panel: Any, values: NDArray[Any], title: str, highest: float | None = None, *, bar: bool = True) -> None:
    top = max(1.0, float(np.nanpercentile(values, 95))) if highest is None else highest
    image = panel.imshow(
        _coarse(values[..., None], mean=True)[..., 0], cmap="magma", vmin=0, vmax=top, interpolation="nearest"
    )
    panel.set_facecolor("0.85")  # shows where nothing is known
    panel.set_title(title, fontsize=10)
    if bar:
        panel.figure.colorbar(image, ax=panel, fraction=0.035, pad=0.02)


def _coarse(values: NDArray[Any], *, mean: bool) -> NDArray[Any]:
    """Values `(H, W, C)` at the size of a panel: of each block the mean of what is known, or its first known value.

    Sparse ground truth would be lost between the pixels of the drawing.
    """
    height, width, channels = values.shape
    step = max(1, max(height, width) // DRAWN)
    rows, columns = -(-height // step), -(-width // step)
    padded = np.full((rows * step, columns * step, channels), np.nan)
    padded[:height, :width] = values
    blocks = padded.reshape(rows, step, columns, step, channels).swapaxes(1, 2).reshape(rows, columns, -1, channels)
    known: NDArray[np.bool_] = np.asarray(np.isfinite(blocks).all(3))
    if not mean:
        first = known.argmax(2)
        return np.take_along_axis(blocks, first[..., None, None], 2)[:, :, 0]
    total = np.where(known[..., None], blocks, 0).sum(2)
    count = np.asarray(known.sum(2))[..., None]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mark(panel: Any, at: tuple[float, float]) -> None:
    panel.plot(*at, "o", markersize=11, markerfacecolor="none", markeredgecolor=TRUE_MARK, markeredgewidth=2)
