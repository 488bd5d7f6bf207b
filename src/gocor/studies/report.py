"""Tables and plots of a study, with the paper's numbers beside ours."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..evaluation.plots import COLOURS, figure, png
from ..evaluation.reports import format_metric, markdown_table, rich_table, title_of
from ..utils.files import write_files
from .paper import PaperTable, column_title, paper_tables
from .run import StudyRun

if TYPE_CHECKING:
    from rich.table import Table

PAPER = "paper"
BELOW = "†"  # after the λ of a layer that ended below its floor
BELOW_NOTE = f"{BELOW}: in at least one run, λ ended below its floor, where it gets no gradient."


def table_of(run: StudyRun) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table: for each data set and metric our mean ± spread over seeds, and the paper's value."""
    paper = paper_tables()[run.study.table] if run.study.table else None
    first = run.scores[run.study.variants[0].label][0]
    columns = [(name, metric) for name, metrics in first.items() for metric in metrics]
    head, rows = [run.study.title], [[variant.label] for variant in run.study.variants]
    for name, metric in columns:
        key = f"{name}.{metric}"
        shown = key in paper.columns if paper else False
        head += [column_title(key) if shown else f"{name}, {_metric_title(metric)}", *([PAPER] if shown else [])]
        for row, variant in zip(rows, run.study.variants, strict=True):
            row.append(_cell(metric, *run.spread(variant.label)[name][metric]))
            if shown and paper is not None:
                row.append(_paper_cell(paper, variant.label, key))
    if run.learnt:
        head += _learnt_columns(run, rows)
    return head, rows


def _learnt_columns(run: StudyRun, rows: list[list[str]]) -> list[str]:
    """Add λ and v⁺(0) of every GOCor layer to the rows; returns the titles of the columns."""
    head: list[str] = []
    for layer in dict.fromkeys(layer for of in run.learnt.values() for layer in of[0]):
        head += [f"{layer} λ or ρ", f"{layer} v⁺(0)"]
        for row, variant in zip(rows, run.study.variants, strict=True):
            found = [of[layer] for of in run.learnt[variant.label] if layer in of]
            weights = [values.weight for values in found if values.weight is not None]
            mark = f" {BELOW}" if any(values.below_floor for values in found) else ""
            row += [_significant([values.regularization for values in found]) + mark, _significant(weights)]
    return head


def _significant(values: Sequence[float]) -> str:
    """Mean ± standard deviation with two digits."""
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2g}{spread}"


def terminal_table(run: StudyRun) -> "Table":
    """The table for the terminal."""
    return rich_table(*table_of(run))


def write_study(run: StudyRun, *, command: str = "", notes: Sequence[str] = ()) -> list[Path]:
    """Write `study.md`, `study.json` and a plot of each data set to the study's folder; returns their paths."""
    paper = paper_tables()[run.study.table] if run.study.table else None
    seeds = len(run.scores[run.study.variants[0].label])
    lines = [f"# {run.study.name}: {run.study.title}", "", *(["```", command, "```", ""] if command else [])]
    spread = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    lines += [f"AEPE in pixels, ms: milliseconds a pair, everything else in %; {spread}.", ""]
    if paper is not None and PAPER in table_of(run)[0]:
        lines += [f"Columns “{PAPER}” are the paper's own numbers: {paper.title}.", ""]
    lines += [line for note in notes for line in (note, "")]
    lines += markdown_table(*table_of(run))
    if any(values.below_floor for of in run.learnt.values() for seed in of for values in seed.values()):
        lines += ["", BELOW_NOTE]
    content = {
        "gocor": __version__,
        "study": run.study.name,
        "command": command,
        "notes": list(notes),
        "seeds": list(run.seeds),
        "training": dict(run.training),
        "variants": {
            variant.label: {
                "model": variant.model,
                "network": dict(variant.network),
                "preset": variant.preset,
                "match": dict(variant.match),
                "scores": run.scores[variant.label],
                "paper": _paper_row(paper, variant.label),
                "learnt": [
                    {layer: asdict(values) for layer, values in of.items()} for of in run.learnt.get(variant.label, ())
                ],
            }
            for variant in run.study.variants
        },
    }
    files = {
        "study.md": ("\n".join(lines) + "\n").encode(),
        "study.json": (json.dumps(content, indent=1, default=list) + "\n").encode(),
        **{f"study-{name}.png": draw_study(run, name) for name in run.benchmarks},
    }
    return write_files(run.folder, files)


def draw_study(run: StudyRun, name: str) -> bytes:
    """A panel for each metric of a data set: our mean and spread, and the paper's values as crosses."""
    paper = paper_tables()[run.study.table] if run.study.table else None
    metrics = list(run.scores[run.study.variants[0].label][0][name])
    side_by_side = [variant for variant in run.study.variants if variant.position is None]
    height = 3.4 if run.study.axis else 1.2 + 0.32 * len(side_by_side)
    made, panels = figure(len(metrics), 1, max(6.0, 2.2 + 3.2 * len(metrics)), height)
    for index, (panel, metric) in enumerate(zip(panels.flat, metrics, strict=True)):
        panel.set_title(f"{name}, {_metric_title(metric)}", fontsize=10)
        if run.study.axis:
            _draw_lines(panel, run, name, metric)
        else:
            _draw_rows(panel, run, name, metric, paper, labels=index == 0)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    if labels:
        made.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    return png(made)


def _draw_rows(panel: Any, run: StudyRun, name: str, metric: str, paper: PaperTable | None, *, labels: bool) -> None:
    variants = run.study.variants
    for row, variant in enumerate(variants):
        mean, spread = run.spread(variant.label)[name][metric]
        scale = _scale(metric)
        panel.errorbar(
            scale * mean, row, xerr=scale * (spread or 0), fmt="o", color=COLOURS[0], capsize=3,
            label="ours" if row == 0 else None,
        )  # fmt: skip
        value = paper.value(variant.label, f"{name}.{metric}") if paper else None
        if value is not None:
            panel.plot(value, row, "x", color=COLOURS[1], label="paper" if row == 0 else None)
    panel.set_yticks(range(len(variants)), [variant.label for variant in variants] if labels else [])
    panel.set(ylim=(len(variants) - 0.5, -0.5))


def _draw_lines(panel: Any, run: StudyRun, name: str, metric: str) -> None:
    scale = _scale(metric)
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for variant in run.study.variants:
        mean, spread = run.spread(variant.label)[name][metric]
        if variant.position is not None:
            lines.setdefault(variant.position[0], []).append((variant.position[1], scale * mean, scale * (spread or 0)))
        else:
            panel.axhline(scale * mean, color="0.5", linestyle=":", label=variant.label)
    for index, (line, points) in enumerate(lines.items()):
        x, y, error = zip(*points, strict=True)
        panel.errorbar(x, y, yerr=error, fmt="o-", color=COLOURS[index], capsize=3, label=line)
    panel.set_xlabel(run.study.axis)


def _scale(metric: str) -> float:
    return 1.0 if metric in ("aepe", "ms") else 100.0


def _metric_title(metric: str) -> str:
    return "ms" if metric == "ms" else title_of(metric)


def _cell(metric: str, mean: float, spread: float | None) -> str:
    def show(value: float) -> str:
        return f"{value:.1f}" if metric == "ms" else format_metric(metric, value)

    return show(mean) if spread is None else f"{show(mean)} ± {show(spread)}"


def _paper_cell(paper: PaperTable, label: str, column: str) -> str:
    value = paper.value(label, column)
    return "–" if value is None else f"{value:g}" if column.endswith(".ms") else f"{value:.2f}"


def _paper_row(paper: PaperTable | None, label: str) -> dict[str, float]:
    if paper is None:
        return {}
    found = {column: paper.value(label, column) for column in paper.columns}
    return {column: value for column, value in found.items() if value is not None}
