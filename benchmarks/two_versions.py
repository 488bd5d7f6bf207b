"""`gocor bench` of two versions of the source tree in one run, before and after a change: which rows became slower.

The versions take turns in the order before, after, after, before, so that a drift of the machine affects both alike.
Each number is the smaller of a version's two medians.

    git worktree add ../before v1.0.0
    python -m benchmarks.two_versions ../before networks modules -- --device cuda --dtype bfloat16
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = 1.03  # time after over time before, above which a row is marked

Key = tuple[str, str, str]
"""Title of the table, row and variant."""


def read(file: Path) -> dict[Key, float]:
    """Milliseconds in a file that `gocor bench --json` has written."""
    sections: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["sections"]
    return {
        (table["title"], row["case"], variant): entry["ms"]
        for tables in sections.values()
        for table in tables
        for row in table["rows"]
        for variant, entry in row["variants"].items()
        if entry["ms"] is not None
    }


def measure(tree: Path, arguments: list[str], file: Path) -> dict[Key, float]:
    """Run `gocor bench` of a source tree."""
    command = [sys.executable, "-m", "gocor", "bench", *arguments, "--no-memory", "--json", str(file)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(tree / "src")}, stdout=subprocess.DEVNULL)
    return read(file)


def faster(first: dict[Key, float], second: dict[Key, float]) -> dict[Key, float]:
    """The smaller time of two runs, for each row that both have."""
    return {key: min(ms, second[key]) for key, ms in first.items() if key in second}


def main() -> None:
    """Print a table of the rows that both versions have."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("before", type=Path, help="another checkout")
    arguments.add_argument("sections", nargs="+", help="sections of gocor bench that both versions have")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, others = arguments.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    trees = {"before": options.before.resolve(), "after": ROOT}
    with TemporaryDirectory() as folder:
        file = Path(folder, "bench.json")
        runs = [(name, measure(trees[name], options.sections + others, file)) for name in
                ("before", "after", "after", "before")]  # fmt: skip
    before, after = (faster(*(found for name, found in runs if name == wanted)) for wanted in ("before", "after"))
    table = Table("table", "row", "variant", title=f"gocor bench {' '.join(options.sections + others)}: ms")
    for column in ("before", "after", "ratio", ""):
        table.add_column(column, justify="right")
    for key in (key for key in before if key in after):
        ratio = after[key] / before[key]
        slower = "slower" if ratio > ALLOWED else ""
        table.add_row(*key, f"{before[key]:.4g}", f"{after[key]:.4g}", f"{ratio:.3f}", slower)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
