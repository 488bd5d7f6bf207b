"""TOML text of plain data; `tomllib` of the standard library only reads."""

import json
import re
from collections.abc import Mapping
from typing import Any


def to_toml(values: Mapping[str, Any], *, table: str = "") -> str:
    """A TOML document of strings, booleans, finite numbers, lists of these, tables and lists of tables.

    Args:
        values: values by name. Entries that are `None` are left out, because TOML has no null.
        table: dotted name of the table that the values belong to; empty for the top level.
    """
    lines, tables = [], []
    for key, value in values.items():
        name = key if re.fullmatch(r"[\w-]+", key, re.ASCII) else _json(key)
        path = f"{table}.{name}" if table else name
        if isinstance(value, Mapping):
            tables.append(f"\n[{path}]\n{to_toml(value, table=path)}")
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            tables += [f"\n[[{path}]]\n{to_toml(item, table=path)}" for item in value]
        elif value is not None:
            lines.append(f"{name} = {_json(value)}\n")
    return "".join(lines + tables)


def _json(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's too, but for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
