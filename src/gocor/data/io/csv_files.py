"""CSV files with a header, read as rows of named values."""

import csv
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import NamedTuple, TextIO

from ...utils.errors import InputError
from ...utils.files import PathLike, open_file

MAX_LINE = 1 << 20  # characters; the file itself may have any size, because it is read line by line


class Row(NamedTuple):
    """A row of a CSV file: its number, counted from 1 with the header included, and its values by column."""

    number: int
    values: dict[str, str]


def read_csv(path: PathLike, columns: Sequence[str] = ()) -> list[Row]:
    """All rows of a CSV file; see `iterate_csv`."""
    return list(iterate_csv(path, columns))


def iterate_csv(path: PathLike, columns: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of a CSV file in UTF-8 that begins with a header, read one at a time.

    Args:
        path: the file.
        columns: names that the header must have, in any order and case; it may have others, too.

    Yields:
        All rows that are not blank. Keys are spelt as in `columns`, those of other columns in lower case; spaces
        around values are removed.
    """
    with TextIOWrapper(open_file(path, limited=False), encoding="utf-8-sig", newline="") as file:
        try:
            yield from _rows(path, csv.reader(_lines(path, file), skipinitialspace=True, strict=True), columns)
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{path} is not a CSV file in UTF-8: {error}") from None


def _lines(path: PathLike, file: TextIO) -> Iterator[str]:
    """The lines of a file, none of which may be long."""
    if not (line := file.readline(MAX_LINE + 1)):
        raise InputError(f"{path} is empty: copy or download it again")
    while line:
        if len(line) > MAX_LINE:
            raise InputError(f"{path} is not a CSV file: a line has more than {MAX_LINE:,} characters")
        yield line
        line = file.readline(MAX_LINE + 1)


def _rows(path: PathLike, lines: Iterator[list[str]], columns: Sequence[str]) -> Iterator[Row]:
    header = [name.strip().lower() for name in next(lines, [])]
    spelling = {column.lower(): column for column in columns}
    names = [spelling.get(name, name) for name in header]
    if len(set(names)) < len(names):
        raise InputError(f"{path} has two columns of the same name: {', '.join(names)}")
    missing = [column for column in columns if column not in names]
    if missing:
        raise InputError(
            f"{path} must begin with a line of the columns {','.join(columns)}; {missing[0]} is missing in {names}"
        )
    for number, row in enumerate(lines, 2):
        stripped = [value.strip() for value in row]
        if not any(stripped):
            continue
        if len(row) != len(names):
            raise InputError(f"{path}, row {number}: expected {len(names)} values ({','.join(names)}), got {len(row)}")
        yield Row(number, dict(zip(names, stripped, strict=True)))
