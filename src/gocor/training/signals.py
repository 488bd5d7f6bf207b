"""Signals that end a run."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def caught_signals() -> Iterator[list[int]]:
    """Within it, the first SIGINT or SIGTERM is put into the list; a second one ends the process as usual."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        old = {}
    try:
        yield caught
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
