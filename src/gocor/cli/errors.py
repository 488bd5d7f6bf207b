"""Messages of the `gocor` command: one line each, and never a line in place of the traceback of a programming error."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dis import opname
from typing import NoReturn

import torch

from ..models.weights import UntrainedWarning


def say(message: str) -> None:
    """One line on stderr."""
    print(f"gocor: {' '.join(message.split())}", file=sys.stderr)


def fail(message: str, code: int) -> NoReturn:
    """End with one line on stderr."""
    say(message)
    raise SystemExit(code)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Our own warnings in a line each, others as Python shows them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UntrainedWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, UntrainedWarning):
            say(f"warning: {warning.message}")
        else:
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


def describe(error: Exception) -> str:
    """What a line says about an error."""
    if is_out_of_memory(error):
        return "not enough memory: try a smaller --max-size or --batch"
    if isinstance(error, OSError):
        place = error.filename2 or error.filename  # of a renaming, its target
        return f"{place}: {error.strerror}" if place else error.strerror or str(error)
    return str(error)


def is_explained(error: Exception) -> bool:
    """Whether an error is about the input or the machine, so that its message says all there is to say.

    That is an error of the system or of memory, or one that a `raise` statement of this package made. A ValueError or
    TypeError that Python or a library made on the way is our mistake, and its traceback is needed.
    """
    if isinstance(error, OSError) or is_out_of_memory(error):
        return True
    trace = error.__traceback__
    if not isinstance(error, (ValueError, TypeError)) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
    instruction = opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return package == __name__.partition(".")[0] and instruction == "RAISE_VARARGS"


def is_out_of_memory(error: Exception) -> bool:
    """On a GPU, or on the CPU, where torch has no class for it."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
