"""SIGINT and SIGTERM, which end a run after the current step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def caught_signals() -> Iterator[list[int]]:
    """Append the first SIGINT or SIGTERM inside the block to the list; a second one ends the process as usual."""
    caught: list[int] = []

    def catch(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    try:
        previous = {number: signal.signal(number, catch) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # Python sets signal handlers in the main thread only
        previous = {}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
