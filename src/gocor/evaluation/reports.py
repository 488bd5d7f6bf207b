"""Results as tables in the terminal, as Markdown and as JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..utils.files import PathLike, write_files
from .calibration_report import draw_calibration, overall_calibration, reliability_tables, summary_tables
from .metrics import BOUNDARIES, SPEEDS, ratios
from .protocols import Protocol
from .runner import Evaluation

if TYPE_CHECKING:
    from rich.table import Table

Results = Mapping[str, Mapping[str, Evaluation]]  # by matcher, then by data set

AREAS = {"homography_auc": "px", "pose_auc": "°"}
TITLES = {"aepe": "AEPE", "fl": "F1", "std": "σ"}
REGIONS = {"all": "all", "noc": "matched", "occ": "unmatched", **{name: name for name in (*BOUNDARIES, *SPEEDS)}}


def title_of(metric: str) -> str:
    """Name of a metric in tables."""
    return TITLES.get(metric, metric.upper())


def format_metric(metric: str, value: float) -> str:
    """Format errors in pixels with two decimals, and fractions as percentages with one."""
    return f"{value:.2f}" if metric in ("aepe", "std") else f"{100 * value:.1f}"


def header(protocol: Protocol) -> str:
    """Names of the metrics in a cell, such as `AEPE / PCK-1 / PCK-5`."""
    named = {"pck-alpha": f"PCK-{protocol.alpha:g}"} if protocol.alpha is not None else {}
    return " / ".join(named.get(metric, title_of(metric)) for metric in protocol.metrics)


def cell(evaluation: Evaluation | None) -> str:
    """Metrics of a data set in one cell; a dash without an evaluation."""
    if evaluation is None:
        return "–"
    return " / ".join(format_metric(metric, value) for metric, value in evaluation.metrics.items())


def sets_of(results: Results) -> dict[str, Evaluation]:
    """The data sets of results in their order, each with one of its evaluations."""
    return {name: evaluation for sets in reversed(list(results.values())) for name, evaluation in sets.items()}


def terminal_tables(results: Results, width: int) -> list["Table"]:
    """Tables with a row for each matcher and a column for each data set, split to fit the terminal's width."""
    sets = sets_of(results)
    headers = {name: header(evaluation.protocol) for name, evaluation in sets.items()}
    same_metrics = len(set(headers.values())) == 1  # Then the first column's header names the metrics.
    corner = next(iter(headers.values())) if same_metrics else "matcher"
    titles = {name: [name] if same_metrics else [name, headers[name]] for name in sets}
    cells = {name: [cell(of.get(name)) for of in results.values()] for name in sets}
    widths = {name: 3 + max(map(len, (*titles[name], *cells[name]))) for name in sets}
    first = 4 + max(map(len, (*results, corner)))
    chunks: list[list[str]] = [[]]
    for name in sets:
        if chunks[-1] and first + sum(widths[other] for other in chunks[-1]) + widths[name] > width:
            chunks.append([])
        chunks[-1].append(name)
    tables = [
        rich_table(
            [corner, *("\n".join(titles[name]) for name in chunk)],
            [[matcher, *(cells[name][row] for name in chunk)] for row, matcher in enumerate(results)],
        )
        for chunk in chunks
    ]
    for key, unit in AREAS.items():
        if known := {name: evaluation for name, evaluation in sets.items() if key in evaluation.summary}:
            thresholds = " / ".join(next(iter(known.values())).summary[key])
            rows = [[matcher, *(_areas(of.get(name), key) for name in known)] for matcher, of in results.items()]
            tables.append(rich_table([f"{key.removesuffix('_auc')} AUC at {thresholds} {unit}", *known], rows))
    for table in (*summary_tables(results), *reliability_tables(results, only_all=True)):
        tables.append(rich_table([table.title, *table.head], table.rows))
    return tables


def rich_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> "Table":
    """A table for the terminal."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for index, title in enumerate(head):
        table.add_column(title, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def to_markdown(results: Results, *, title: str, command: str = "") -> str:
    """A report with a table of all data sets, then details by region, by group, of geometry and of calibration."""
    sets = sets_of(results)
    lines = [f"# {title}", ""]
    if command:
        lines += ["```", command, "```", ""]
    lines += ["AEPE in pixels, everything else in %. Protocols are described in docs/evaluation.md.", ""]
    lines += markdown_table(
        ["matcher", *(f"{name}<br>{header(evaluation.protocol)}" for name, evaluation in sets.items())],
        [[matcher, *(cell(of.get(name)) for name in sets)] for matcher, of in results.items()],
    )
    timed = [[matcher, *(_seconds(of.get(name)) for name in sets)] for matcher, of in results.items()]
    lines += ["", "Seconds a pair:", "", *markdown_table(["matcher", *sets], timed)]
    for name in sets:
        lines += _details(name, {matcher: of[name] for matcher, of in results.items() if name in of})
    for what, tables in (("calibration", summary_tables(results)), ("reliability", reliability_tables(results))):
        for table in tables:
            lines += ["", f"## {what} of {table.title}", ""]
            lines += markdown_table(["data set" if what == "calibration" else "bin", *table.head], table.rows)
    return "\n".join(lines) + "\n"


def to_json(results: Results, **about: Any) -> dict[str, Any]:
    """All summaries and the figures of every pair, for JSON; further entries are added at the top.

    `calibration` there is that over all data sets.
    """
    calibration = overall_calibration(results)
    return {
        "gocor": __version__,
        **about,
        **({"calibration": calibration} if calibration else {}),
        "matchers": {
            matcher: {
                name: {
                    "protocol": evaluation.protocol.name,
                    **evaluation.summary,
                    "per_pair": [_flat(row) for row in evaluation.rows],
                }
                for name, evaluation in sets.items()
            }
            for matcher, sets in results.items()
        },
    }


def write_report(results: Results, folder: PathLike, *, title: str, command: str = "", **about: Any) -> list[Path]:
    """Write `results.json`, `results.md` and plots to a folder; returns their paths."""
    from .plots import draw_report

    content = json.dumps(to_json(results, title=title, command=command, **about), indent=1) + "\n"
    files = {
        "results.json": content.encode(),
        "results.md": to_markdown(results, title=title, command=command).encode(),
        **draw_report(results),
        **draw_calibration(results),
    }
    return write_files(folder, files)


def _details(name: str, of: Mapping[str, Evaluation]) -> list[str]:
    """Tables of a data set by region, by group, and of the AUC of homographies and poses."""
    lines: list[str] = []
    first = next(iter(of.values()))
    shown = [region for region in REGIONS if region in first.summary["regions"]]
    if len(shown) > 1:
        metrics = [metric for metric in ("aepe", "fl") if metric in ("aepe", *first.protocol.metrics)]
        rows = [
            [matcher, *(_region(evaluation, region, metrics) for region in shown)] for matcher, evaluation in of.items()
        ]
        lines += ["", f"## {name}: {' / '.join(map(title_of, metrics))} by region", ""]
        lines += markdown_table(["matcher", *(REGIONS[region] for region in shown)], rows)
    groups = first.summary.get("groups", {})
    if groups and len(groups) <= 12:
        shown_as = header(first.protocol).replace("AEPE", "AEPE ± σ")
        lines += ["", f"## {name}: by group, mean over its pairs ({shown_as})", ""]
        lines += ["σ is the standard deviation of the errors of a pair, averaged over the pairs of the group.", ""]
        rows = [
            [matcher, *(_group(evaluation.summary["groups"].get(group), first.protocol.metrics) for group in groups)]
            for matcher, evaluation in of.items()
        ]
        lines += markdown_table(["matcher", *groups], rows)
    for key, unit in AREAS.items():
        if key in first.summary:
            thresholds = list(first.summary[key])
            lines += ["", f"## {name}: {key.replace('_auc', '')} AUC [%]", ""]
            rows = [
                [matcher, *(f"{100 * evaluation.summary[key][t]:.1f}" for t in thresholds)]
                for matcher, evaluation in of.items()
            ]
            lines += markdown_table(["matcher", *(f"@{threshold}{unit}" for threshold in thresholds)], rows)
    return lines


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table: a column of labels, then columns of numbers."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] + ["---:"] * (len(head) - 1), *rows)]


def _region(evaluation: Evaluation, region: str, metrics: Sequence[str]) -> str:
    """Metrics of a region, averaged as the protocol says."""
    found = evaluation.summary["regions"].get(region)
    if found is None:
        return "–"
    averages = {metric: found[evaluation.protocol.average.get(metric, "pair")] for metric in metrics}
    return " / ".join(format_metric(metric, values[metric]) for metric, values in averages.items())


def _group(values: Mapping[str, float] | None, metrics: Sequence[str]) -> str:
    if values is None:
        return "–"
    spread = {"aepe": f" ± {format_metric('std', values['std'])}"} if "std" in values else {}
    return " / ".join(format_metric(metric, values[metric]) + spread.get(metric, "") for metric in metrics)


def _areas(evaluation: Evaluation | None, key: str) -> str:
    return "–" if evaluation is None else " / ".join(f"{100 * area:.1f}" for area in evaluation.summary[key].values())


def _seconds(evaluation: Evaluation | None) -> str:
    return "–" if evaluation is None else f"{evaluation.summary['seconds']:.3f}"


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of one pair."""
    kept = {key: value for key, value in row.items() if key != "regions"}
    return kept | {"points": int(row["regions"]["all"]["n"]), **ratios(row["regions"]["all"])}
