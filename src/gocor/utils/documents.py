"""JSON and TOML text as plain data. Whatever the parsers raise becomes an InputError."""

import json
import re
import tomllib
from typing import Any

from .errors import InputError

# A key of this many parts, `a.b.c`. The time of Python's parser grows with the square of their number.
LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){64}""")


def parse_json(data: str | bytes) -> Any:
    """The value of a JSON text, in UTF-8 if it is given as bytes."""
    try:
        return json.loads(data)
    except RecursionError:
        raise InputError("not a JSON file: it is nested too deeply") from None
    except ValueError as error:  # not JSON, not UTF-8, or a number of thousands of digits
        raise InputError(f"not a JSON file: {_reason(error)}") from None


def parse_toml(data: str | bytes) -> dict[str, Any]:
    """The table of a TOML text, in UTF-8 if it is given as bytes."""
    try:
        text = data if isinstance(data, str) else data.decode()
        if LONG_KEY.search(text):
            raise InputError("not a TOML file: it is nested too deeply")
        return tomllib.loads(text)
    except InputError:
        raise
    except RecursionError:
        raise InputError("not a TOML file: it is nested too deeply") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise InputError(f"not a TOML file: {_reason(error)}") from None


def _reason(error: ValueError) -> str:
    # Python's message on long numbers gives advice to programmers.
    return "a number has too many digits" if "integer string conversion" in str(error) else str(error)
