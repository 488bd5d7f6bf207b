"""Timing that the benchmarks share: medians, the variants of one comparison interleaved, CUDA events on a GPU."""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table


def parser(description: str) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--repeats", type=int, default=15, help="timed calls of each variant")
    arguments.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's own choice)")
    arguments.add_argument("--json", type=Path, default=None, help="also write the rows to this file")
    return arguments


def once(call: Callable[[], object], device: str) -> float:
    """Milliseconds of one call."""
    if device.startswith("cuda"):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def compare(variants: dict[str, Callable[[], object]], device: str, repeats: int) -> dict[str, float]:
    """Median milliseconds of each variant; they take turns, so that a slow moment of the machine meets all of them."""
    for call in variants.values():
        call()
        call()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, call in variants.items():
            times[name].append(once(call, device))
    return {name: statistics.median(values) for name, values in times.items()}


def report(title: str, rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Print a table, and write the rows as JSON where asked to."""
    where = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else platform.processor() or "CPU"
    threads = "" if arguments.device.startswith("cuda") else f", {torch.get_num_threads()} threads"
    table = Table(title=f"{title} ({where}{threads}, torch {torch.__version__})")
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=140).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"title": title, "device": where, "rows": rows}, indent=1))
