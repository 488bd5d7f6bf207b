"""Benchmark results as a table for the terminal and as JSON."""

import json
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from ..utils.files import write_bytes_atomically
from .run import TableResult


def as_rich(result: TableResult) -> RichTable:
    """A table of each variant's time, its ratio to the first variant, its peak memory, and the growth per row."""
    shown = RichTable(title=result.table.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    variants = list(result.rows[0])
    first, last = variants[0], variants[-1]
    shown.add_column("")
    for name in variants:
        shown.add_column(f"{name}\nms", justify="right")
        if name != first:
            shown.add_column(f"over\n{first}", justify="right")
    for name in variants:
        shown.add_column(f"{name}\nMiB", justify="right")
    if result.table.growth:
        shown.add_column(f"{last} ms\ngrows by", justify="right")
        shown.add_column("MiB\ngrows by", justify="right")
    for index, (case, row) in enumerate(zip(result.table.cases, result.rows, strict=True)):
        cells = [case.name]
        for name, measured in row.items():
            cells.append("no memory" if measured.ms is None else digits(measured.ms))
            if name != first:
                cells.append(digits(result.ratio(index, name)))
        cells += [digits(measured.mib) for measured in row.values()]
        if result.table.growth:
            cells += [digits(result.growth(index, last, what)) if index else "" for what in ("ms", "mib")]
        shown.add_row(*cells)
    return shown


def digits(value: float | None) -> str:
    """A number with three significant digits, or all digits before the decimal point; a dash for `None`."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_json(path: Path, environment: dict[str, object], results: dict[str, list[TableResult]]) -> None:
    """Write all measurements and the environment that they were made in, atomically."""
    sections = {name: [result.as_json() for result in found] for name, found in results.items()}
    text = json.dumps(environment | {"sections": sections}, indent=1, ensure_ascii=False)
    write_bytes_atomically(path, (text + "\n").encode())
