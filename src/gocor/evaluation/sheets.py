"""Qualitative sheets: a pair, the flows of several matchers, and the scores of one pixel after each iteration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.datasets import Pair
from ..models.network import MatchingNetwork
from ..ops.sampling import is_inside
from ..ops.warp import inside_mask, warp
from ..utils.arrays import FlowField, Picture
from ..utils.errors import InputError
from ..utils.files import PathLike, remove_leftovers, write_bytes_atomically
from ..viz import flow_scale, flow_to_color
from ..viz.drawing import picture_of
from .baselines import Matcher, network_matcher
from .benchmarks import Benchmark
from .confidences import Confidences, confidences
from .metrics import endpoint_errors
from .named_matchers import NamedMatcher
from .plots import figure, png

Point = tuple[float, float]  # x, y
TRUE_MARK, WRONG_MARK = "#39ff14", "#00c8ff"
PANEL_SIDE = 320  # Approximate side of a panel, in pixels.


def choose_pixel(pair: Pair) -> Point:
    """The pixel `(x, y)` nearest to the centre whose true match is inside the query and, if possible, visible."""
    start, end, occluded = pair.truth()
    centre = (np.array(pair.reference.shape[1::-1]) - 1) / 2
    if not len(start):
        return float(centre[0]), float(centre[1])
    good = is_inside(end, pair.query.shape)
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
    pixel: Point | None = None,
) -> bytes:
    """Draw a sheet as PNG.

    First row: reference, query, and the query warped by each matcher. Second row: true flow, the difference of the
    first two flows, and the flows. Third row: errors of the flows. Two more rows, if a matcher has GOCor: scores of the
    pixel in the reference itself and in the query, see `confidences`; they are those of the last such matcher.

    Args:
        pair: images and ground truth.
        matchers: two or more matchers by name, usually with plain correlation and with GOCor.
        options: options of networks by name, see `network_matcher`.
        pixel: `(x, y)` in the reference; by default that of `choose_pixel`.
    """
    if len(matchers) < 2:
        raise InputError(f"a sheet compares two or more matchers, got {len(matchers)}")
    height, width = pair.reference.shape[:2]
    chosen = choose_pixel(pair) if pixel is None else pixel
    if not (0 <= chosen[0] <= width - 1 and 0 <= chosen[1] <= height - 1):
        raise InputError(f"the pixel {chosen} is outside the reference, which has {width}×{height} pixels")
    flows, scores = {}, None
    for name, matcher in matchers.items():
        match = matcher
        if isinstance(matcher, MatchingNetwork):
            match = network_matcher(matcher, **(options or {}).get(name, {}))
            scores = confidences(matcher, pair, chosen) or scores
        flows[name] = match(pair.reference, pair.query)
    return _draw(pair, flows, chosen, scores)


def _draw(pair: Pair, flows: Mapping[str, FlowField], pixel: Point, scores: Confidences | None) -> bytes:
    height, width = pair.reference.shape[:2]
    count = len(scores.maps) if scores else 0
    rows, columns = 5 if scores else 3, max(2 + len(flows), count)
    made, panels = figure(columns, rows, 2.9 * columns, (2.7 * min(height / width, 1.2) + 0.35) * rows + 0.4)
    for panel in panels.flat:
        panel.set(xticks=[], yticks=[])
        panel.grid(False)
        panel.spines[:].set_visible(False)
    target = _target(pair, pixel)
    _first_row(panels[0], pair, flows, pixel, target)
    _flow_rows(panels[1], panels[2], pair, flows)
    if scores:
        _score_row(panels[3], scores.titles, scores.own_maps, scores.own_extent, pixel)
        _score_row(panels[4], scores.titles, scores.maps, scores.extent, target)
        panels[3, 0].set_ylabel("in the reference")
        panels[4, 0].set_ylabel("in the query")
    used = 2 + len(flows)
    hidden = [*panels[0, used:], *panels[1, used:], *panels[2, :2], *panels[2, used:], *panels[3:, count:].flat]
    for panel in hidden:
        panel.set_visible(False)
    below = "; below, scores of ○; × marks the highest score if it is elsewhere" if scores else ""
    made.suptitle(f"{pair.name}{below}", fontsize=12)
    return png(made)


def write_sheets(
    matchers: Sequence[NamedMatcher],
    benchmarks: Mapping[str, Benchmark],
    folder: PathLike,
    *,
    count: int,
    pixel: Point | None = None,
) -> list[Path]:
    """Draw sheets of `count` evenly spaced pairs of each data set; returns their paths."""
    loaded = {matcher.label: matcher.load() for matcher in matchers}
    options = {matcher.label: matcher.keywords() for matcher in matchers}
    place, files = Path(folder), []
    place.mkdir(parents=True, exist_ok=True)
    remove_leftovers(place)
    for name, (dataset, protocol) in benchmarks.items():
        for index, item in enumerate(dataset.spread(count).items):
            path = place / f"{name}-{index:03d}.png"
            sheet = draw_sheet(protocol.prepare(item.read()), loaded, options=options, pixel=pixel)
            write_bytes_atomically(path, sheet)
            files.append(path)
    return files


def _first_row(row: Any, pair: Pair, flows: Mapping[str, FlowField], pixel: Point, target: Point | None) -> None:
    _show(row[0], pair.reference, "reference")
    _mark(row[0], pixel)
    _show(row[1], pair.query, "query")
    if target is not None:
        _mark(row[1], target)
    for panel, (name, flow) in zip(row[2:], flows.items(), strict=False):
        _show(panel, _warped(pair, flow), f"query warped\n{name}")


def _flow_rows(row: Any, below: Any, pair: Pair, flows: Mapping[str, FlowField]) -> None:
    """Flows, and their errors in the row below."""
    first, second = list(flows.values())[:2]
    _heat(row[1], np.linalg.norm(first - second, axis=2), "difference of the\nfirst two flows [px]")
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
    for index, (name, flow) in enumerate(zip(flows, shown, strict=True), start=2):
        _show(row[index], flow_to_color(flow, scale), f"flow\n{name}")
        mean = endpoint_errors(pair, flows[name]).error
        text = f"AEPE {mean.mean():.2f} px" if mean.size else "no point inside"
        if errors:
            _heat(below[index], errors[index - 2], f"error\n{text}", highest=worst, bar=index == len(flows) + 1)
        else:
            below[index].text(0.5, 0.5, text, ha="center", va="center")


def _score_row(
    row: Any,
    titles: Sequence[str],
    maps: Sequence[NDArray[Any]],
    extent: tuple[float, float, float, float],
    target: Point | None,
) -> None:
    """Scores of the pixel after each iteration, with its true match."""
    left, right, bottom, top = extent
    for panel, title, values in zip(row, titles, maps, strict=False):
        panel.imshow(
            np.maximum(values, 0), extent=extent, cmap="inferno", vmin=0, interpolation="nearest", aspect="auto"
        )
        y, x = np.unravel_index(values.argmax(), values.shape)
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


def _target(pair: Pair, pixel: Point) -> Point | None:
    """The true match of a pixel, from ground truth at most √2 pixels away; `None` if there is none."""
    start, end, _ = pair.truth()
    if not len(start):
        return None
    distance = ((start - np.array(pixel)) ** 2).sum(1)
    best = int(distance.argmin())
    return (float(end[best, 0]), float(end[best, 1])) if distance[best] <= 2 else None


def _warped(pair: Pair, flow: FlowField) -> Picture:
    query = torch.from_numpy(pair.query).permute(2, 0, 1)[None].float()
    field = torch.from_numpy(np.ascontiguousarray(flow.transpose(2, 0, 1)))[None]
    seen = inside_mask(field, pair.query.shape[:2])[0, 0].numpy()
    return np.where(seen[..., None], picture_of(warp(query, field)[0]), np.uint8(255))


def _show(panel: Any, picture: Picture, title: str) -> None:
    panel.imshow(picture, interpolation="antialiased")
    panel.set_title(title, fontsize=10)


def _heat(panel: Any, values: NDArray[Any], title: str, highest: float | None = None, *, bar: bool = True) -> None:
    top = max(1.0, float(np.nanpercentile(values, 95))) if highest is None else highest
    image = panel.imshow(
        _coarse(values[..., None], mean=True)[..., 0], cmap="magma", vmin=0, vmax=top, interpolation="nearest"
    )
    panel.set_facecolor("0.85")  # It is visible where the ground truth is unknown.
    panel.set_title(title, fontsize=10)
    if bar:
        panel.figure.colorbar(image, ax=panel, fraction=0.035, pad=0.02)


def _coarse(values: NDArray[Any], *, mean: bool) -> NDArray[Any]:
    """Values `(H, W, C)` at about the size of a panel: the mean of each block's known values, or its first known one.

    Plain subsampling would lose sparse ground truth.
    """
    height, width, channels = values.shape
    step = max(1, max(height, width) // PANEL_SIDE)
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


def _mark(panel: Any, at: Point) -> None:
    panel.plot(*at, "o", markersize=11, markerfacecolor="none", markeredgecolor=TRUE_MARK, markeredgewidth=2)
