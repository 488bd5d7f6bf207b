"""Plots of results: PCK over thresholds, AEPE by data set, accuracy over ETH3D's interval and over iterations."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .reports import Results

# Okabe and Ito's colours for colour-blind readers, without yellow, which is too pale on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKERS = "osD^vP*"
DPI = 110
SMALLEST = 1e-3  # An AEPE of zero is drawn at this value, in pixels, on a logarithmic scale.
INTERVAL = re.compile(r"eth3d-(\d+)")


def figure(columns: int, rows: int, width: float, height: float) -> tuple[Any, Any]:
    """A figure that does not use pyplot's global state, and its panels `(rows, columns)`."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout="constrained")
    panels = made.subplots(rows, columns, squeeze=False)
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.set_axisbelow(True)
    return made, panels


def png(made: Any) -> bytes:
    """A figure as the bytes of a PNG file, reproducibly."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    FigureCanvasAgg(made).print_png(buffer)
    return buffer.getvalue()


def style(index: int) -> dict[str, Any]:
    """Colour, marker and line style of the n-th line of a plot."""
    dashes = ("-", "--", ":")[index // len(COLOURS) % 3]
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.6,
        "linestyle": dashes,
    }


def panel_grid(count: int, *, width: float, height: float) -> tuple[Any, Any]:
    """A figure with a number of panels of a size in inches, at most three in a row, and the panels."""
    columns = min(3, count)
    rows = -(-count // columns)
    made, panels = figure(columns, rows, max(6.0, 1.2 + width * columns), 0.8 + height * rows)
    for panel in panels.flat[count:]:
        panel.set_visible(False)
    return made, panels.flat[:count]


def draw_report(results: "Results") -> dict[str, bytes]:
    """Plots of the results by file name."""
    files = {"pck.png": draw_curves(results), "aepe.png": draw_aepe(results)}
    intervals = draw_intervals(results)
    return files | ({"interval.png": intervals} if intervals else {})


def draw_curves(results: "Results") -> bytes:
    """Plot PCK over the threshold, with a panel for each data set and a line for each matcher."""
    names = _dataset_names(results)
    made, panels = panel_grid(len(names), width=3.3, height=2.5)
    for panel, name in zip(panels, names, strict=True):
        for index, (matcher, sets) in enumerate(results.items()):
            if name in sets:
                thresholds, shares = sets[name].curve()
                panel.plot(thresholds, 100 * np.array(shares), label=matcher, **style(index))
        panel.set(title=name, xscale="log", ylim=(0, 102))
        panel.set_xticks([1, 3, 5, 10, 36], ["1", "3", "5", "10", "36"])
        panel.minorticks_off()
    for panel in panels[-3:]:
        panel.set_xlabel("threshold [px]")
    made.supylabel("PCK [%], mean over pairs", fontsize=10)
    legend(made, panels[0])
    return png(made)


def draw_aepe(results: "Results") -> bytes:
    """Plot AEPE by data set on a logarithmic scale, with a dot for each matcher."""
    names = _dataset_names(results)
    made, panels = figure(1, 1, max(6.0, 3.2 + 0.95 * len(names)), 4.0)
    panel = panels[0, 0]
    for index, (matcher, sets) in enumerate(results.items()):
        there = [name for name in names if name in sets]
        values = [max(SMALLEST, sets[name].summary["regions"]["all"]["pair"]["aepe"]) for name in there]
        shift = (index - (len(results) - 1) / 2) * min(0.12, 0.7 / len(results))
        dots = style(index) | {"linestyle": "none", "markersize": 6.5}
        panel.plot([names.index(name) + shift for name in there], values, label=matcher, **dots)
    panel.set_xticks(range(len(names)), names, rotation=25, ha="right")
    panel.set(yscale="log", ylabel="AEPE [px], mean over pairs", xlim=(-0.5, len(names) - 0.5))
    panel.grid(False, axis="x")
    for at in range(1, len(names)):
        panel.axvline(at - 0.5, color="0.9", linewidth=0.8, zorder=0)
    _plain_numbers(panel.yaxis)
    legend(made, panel)
    return png(made)


def draw_intervals(results: "Results") -> bytes | None:
    """Plot ETH3D's metrics over the interval between frames; `None` for results of other data sets."""
    found = (INTERVAL.fullmatch(name) for name in _dataset_names(results))
    intervals = sorted((int(match[1]), match[0]) for match in found if match)
    if len(intervals) < 2:
        return None
    lines = {}
    for matcher, sets in results.items():
        there = [(interval, sets[name].metrics) for interval, name in intervals if name in sets]
        lines[matcher] = ([interval for interval, _ in there], [values for _, values in there])
    return draw_metrics(lines, xlabel="interval between frames")


def draw_metrics(lines: Mapping[str, tuple[Sequence[float], Sequence[Mapping[str, float]]]], *, xlabel: str) -> bytes:
    """Plot metrics over a number, with a panel for each metric.

    Args:
        lines: for each matcher, the values on the x axis and the metrics at them.
        xlabel: label of the x axis.
    """
    metrics = list(next(iter(lines.values()))[1][0])
    made, panels = figure(len(metrics), 1, max(6.0, 0.6 + 3.4 * len(metrics)), 3.4)
    for panel, metric in zip(panels.flat, metrics, strict=True):
        for index, (label, (x, values)) in enumerate(lines.items()):
            scale = 1 if metric in ("aepe", "seconds") else 100
            panel.plot(x, [scale * value[metric] for value in values], label=label, **style(index))
        names = {"aepe": "AEPE [px]", "seconds": "seconds a pair", "fl": "F1 [%]", "pck-alpha": "PCK-α [%]"}
        panel.set(xlabel=xlabel, title=names.get(metric, f"{metric.upper()} [%]"))
        if metric == "seconds":
            panel.set_ylim(0, 1.1 * max(value[metric] for _, values in lines.values() for value in values))
        panel.set_xticks(sorted({value for x, _ in lines.values() for value in x}))
    legend(made, panels[0, 0])
    return png(made)


def _dataset_names(results: "Results") -> list[str]:
    return list(dict.fromkeys(name for sets in results.values() for name in sets))


def legend(made: Any, panel: Any) -> None:
    """Add a legend below the panels, in as many columns as fit; the figure grows by its rows."""
    handles, labels = panel.get_legend_handles_labels()
    width, height = made.get_size_inches()
    columns = min(len(labels), max(1, int(width / (0.55 + 0.08 * max(map(len, labels))))))
    rows = -(-len(labels) // columns)
    made.set_size_inches(width, height + 0.2 * (rows - 1))
    made.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _plain_numbers(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
