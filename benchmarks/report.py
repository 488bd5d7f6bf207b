"""Options and the table of results that all studies share."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from gocor.bench.run import processor


def parser(description: str) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--repeats", type=int, default=15, help="timed calls of each variant")
    arguments.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's own choice)")
    arguments.add_argument("--json", type=Path, default=None, help="also write the rows to this file")
    return arguments


def report(title: str, rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Print the rows as a table, and write them to the JSON file if one was given."""
    cuda = arguments.device.startswith("cuda")
    where = torch.cuda.get_device_name() if cuda else processor()
    threads = "" if cuda else f", {torch.get_num_threads()} threads"
    table = Table(title=f"{title} ({where}{threads}, torch {torch.__version__})")
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=140).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"title": title, "device": where, "rows": rows}, indent=1))
