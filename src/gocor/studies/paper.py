"""The numbers of the paper, as data. `python -m gocor.studies.paper` prints them as the tables of docs/paper.md."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import fill

from ..evaluation.reports import markdown_table, title_of

FILE = Path(__file__).with_name("paper.toml")
WIDTH = 120  # columns of Markdown
DATASETS = {
    "hpatches": "HPatches",
    "kitti2012": "KITTI 2012",
    "kitti2015": "KITTI 2015",
    "sintel-clean": "Sintel clean",
    "sintel-final": "Sintel final",
    "megadepth": "MegaDepth",
}


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        title: what it shows.
        columns: `DATASET.METRIC` as in `gocor eval`, or a plain title.
        rows: values by label, one per column; NaN where the paper gives none.
    """

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]

    def value(self, row: str, column: str) -> float | None:
        """The value of a row and a column; `None` if the paper gives none."""
        if row not in self.rows or column not in self.columns:
            return None
        value = self.rows[row][self.columns.index(column)]
        return None if math.isnan(value) else value

    def to_markdown(self) -> str:
        """The table in Markdown."""
        head = ["", *map(column_title, self.columns)]
        rows = [[label, *map(_number, values)] for label, values in self.rows.items()]
        return "\n".join(markdown_table(head, rows))


@cache
def paper_tables() -> dict[str, PaperTable]:
    """The tables of the paper by name."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: PaperTable(
            table["title"], tuple(table["columns"]), {label: tuple(row) for label, row in table["rows"].items()}
        )
        for name, table in content.items()
    }


def column_title(column: str) -> str:
    """`kitti2012.fl` → `KITTI 2012, F1`."""
    dataset, _, metric = column.partition(".")
    if dataset not in DATASETS:
        return column
    return f"{DATASETS[dataset]}, {'ms' if metric == 'ms' else title_of(metric)}"


def to_markdown() -> str:
    """All tables, as docs/paper.md shows them."""
    return "\n".join(
        f"{fill(table.title + ':', WIDTH)}\n\n{table.to_markdown()}\n" for table in paper_tables().values()
    )


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}" if value >= 10 else f"{value:.3f}".rstrip("0").ljust(4, "0")


if __name__ == "__main__":
    print(to_markdown(), end="")
