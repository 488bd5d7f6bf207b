"""CSV files with a header, read as rows of named values."""

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes


class Row(NamedTuple):
    """A row of a CSV file: its number, counted from 1 with the header included, and its values by column."""

    number: int
    values: dict[str, str]


def read_csv(path: PathLike, columns: Sequence[str] = ()) -> list[Row]:
    """Read a CSV file in UTF-8 that begins with a header.

    Args:
        path: the file.
        columns: names that the header must have, in any order and case; it may have others, too.

    Returns:
        All rows that are not blank. Keys are spelt as in `columns`, those of other columns in lower case; spaces
        around values are removed.
    """
    data = read_bytes(path)
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig")), skipinitialspace=True, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: {error}") from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    spelling = {column.lower(): column for column in columns}
    names = [spelling.get(name, name) for name in header]
    if len(set(names)) < len(names):
        raise InputError(f"{path} has two columns of the same name: {', '.join(names)}")
    missing = [column for column in columns if column not in names]
    if missing:
        raise InputError(
            f"{path} must begin with a line of the columns {','.join(columns)}; {missing[0]} is missing in {names}"
        )
    found = []
    for number, row in enumerate(rows[1:], 2):
        stripped = [value.strip() for value in row]
        if not any(stripped):
            continue
        if len(row) != len(names):
            raise InputError(f"{path}, row {number}: expected {len(names)} values ({','.join(names)}), got {len(row)}")
        found.append(Row(number, dict(zip(names, stripped, strict=True))))
    return found
