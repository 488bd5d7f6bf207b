"""Messages of the `gocor` command. User errors print one line; bugs keep their traceback."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ..utils.errors import is_out_of_memory

MAX_LINE = 1000  # characters


def say(message: str) -> None:
    """Print one line on stderr."""
    print(f"gocor: {' '.join(message.split())}", file=sys.stderr)


def fail(message: str, code: int) -> NoReturn:
    """Print one line on stderr and exit."""
    say(message)
    raise SystemExit(code)


@contextmanager
def warnings_as_lines(category: type[Warning]) -> Iterator[None]:
    """Print each warning of this category as one line; show all others as Python does."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", category)
        yield
    for warning in caught:
        if issubclass(warning.category, category):
            say(f"warning: {warning.message}")
        else:
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


def describe(error: Exception) -> str:
    """The line to print about an error, cut short if what a file holds made it long."""
    line = _line(error)
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


def _line(error: Exception) -> str:
    if is_out_of_memory(error):
        return "not enough memory: try smaller images (--max-size, --size) or a smaller --batch"
    if isinstance(error, OSError):
        place = error.filename2 or error.filename  # `filename2` is the target of a renaming.
        return f"{place}: {error.strerror}" if place else error.strerror or str(error)
    return str(error)
