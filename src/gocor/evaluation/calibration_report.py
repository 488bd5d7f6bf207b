"""Calibration in tables and plots."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .calibration import KINDS, summarise_calibration
from .plots import legend, panel_grid, png, style

if TYPE_CHECKING:
    from .reports import Results

ALL = "all"  # name of all data sets together
TRUE = {"confidence": "right", "visibility": "visible"}
DOT = 260  # area, in square points, of the dot of a bin that holds all points
SMALLEST_DOT = 8


class Table(NamedTuple):
    """A table: its title, the heads of its columns, and rows of a label and cells."""

    title: str
    head: list[str]
    rows: list[list[str]]


def overall_calibration(results: "Results") -> dict[str, dict[str, Any]]:
    """Calibration of each matcher over the pairs of all data sets, see `summarise_calibration`."""
    found = {
        matcher: summarise_calibration([row for evaluation in sets.values() for row in evaluation.rows])
        for matcher, sets in results.items()
    }
    return {matcher: summary["calibration"] for matcher, summary in found.items() if summary}


def calibrations(results: "Results", kind: str) -> dict[str, dict[str, Any]]:
    """Figures of a kind by matcher, then by data set; that of all is the last if there are several."""
    everything = overall_calibration(results)
    found: dict[str, dict[str, Any]] = {}
    for matcher, sets in results.items():
        parts = {name: evaluation.summary.get("calibration", {}) for name, evaluation in sets.items()}
        known = {name: part[kind] for name, part in parts.items() if kind in part}
        if len(known) > 1:
            known[ALL] = everything[matcher][kind]
        if known:
            found[matcher] = known
    return found


def summary_tables(results: "Results") -> list[Table]:
    """For each matcher and kind a table with a row for each data set."""
    tables = []
    for kind in KINDS:
        for matcher, sets in calibrations(results, kind).items():
            head = [f"mean {kind}", TRUE[kind], "ECE", "AUC", *(["AUSE"] if kind == "confidence" else [])]
            keys = ["predicted", "true", "ece", "auc", "ause"][: len(head)]
            rows = [[name, *(_percent(found.get(key)) for key in keys)] for name, found in sets.items()]
            tables.append(Table(_title(matcher, kind, sets), head, rows))
    return tables


def reliability_tables(results: "Results", *, only_all: bool = False) -> list[Table]:
    """For each matcher and kind a table with a row for each bin, and columns for each data set."""
    tables = []
    for kind in KINDS:
        for matcher, sets in calibrations(results, kind).items():
            chosen = {name: found for name, found in sets.items() if name == ALL or not only_all or len(sets) == 1}
            head = [f"{name}: {part}" for name in chosen for part in ("share", kind, TRUE[kind])]
            bins = list(zip(*(found["bins"] for found in chosen.values()), strict=True))
            rows = [
                [
                    f"{parts[0]['low']:.1f} to {parts[0]['high']:.1f}",
                    *(_percent(part[key]) for part in parts for key in ("share", "predicted", "true")),
                ]
                for parts in bins
            ]
            tables.append(Table(_title(matcher, kind, sets), head, rows))
    return tables


def draw_calibration(results: "Results") -> dict[str, bytes]:
    """Reliability plots by file name: `calibration.png` of the confidence, and `visibility.png`, if there are any."""
    files = {"confidence": "calibration.png", "visibility": "visibility.png"}
    found = {kind: calibrations(results, kind) for kind in KINDS}
    return {files[kind]: _draw(kind, matchers) for kind, matchers in found.items() if matchers}


def _draw(kind: str, matchers: Mapping[str, Mapping[str, Any]]) -> bytes:
    """A panel for each data set and a line for each matcher; dots have the area of their bin's share of the points."""
    names = list(dict.fromkeys(name for sets in matchers.values() for name in sets if name != ALL))
    names += [ALL] if any(ALL in sets for sets in matchers.values()) else []
    made, panels = panel_grid(len(names), width=3.1, height=2.9)
    for panel, name in zip(panels, names, strict=True):
        panel.plot([0, 100], [0, 100], color="0.6", linewidth=1, linestyle="--", zorder=1)
        for index, (matcher, sets) in enumerate(matchers.items()):
            look = style(index) | {"marker": "none", "linewidth": 1.0}
            bins = [found for found in sets[name]["bins"] if found["share"]] if name in sets else []
            x, y = ([100 * found[key] for found in bins] for key in ("predicted", "true"))
            panel.plot(x, y, label=matcher, **look)
            area = [max(SMALLEST_DOT, DOT * found["share"]) for found in bins]
            panel.scatter(x, y, s=area, color=look["color"], alpha=0.75, linewidths=0, zorder=3, clip_on=False)
        panel.set(title=name, xlim=(0, 100), ylim=(0, 100), aspect="equal")
        panel.set_xticks(range(0, 101, 20))
        panel.set_yticks(range(0, 101, 20))
    for panel in panels[-3:]:
        panel.set_xlabel(f"mean {kind} of a bin [%]")
    for panel in panels[::3]:
        panel.set_ylabel(f"{TRUE[kind]} [%]")
    legend(made, panels[0])
    return png(made)


def _title(matcher: str, kind: str, sets: Mapping[str, Any]) -> str:
    source = next(iter(sets.values()))["source"]
    return f"{matcher}: {kind}" + (f" ({source})" if source else "")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
