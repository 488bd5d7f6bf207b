"""SIGINT and SIGTERM: they end a run after the current step, or at once where there is nothing to save."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """A signal ended the work of an `interruptible` block."""


class Signals:
    """The signals that were caught; the first ends the run.

    Attributes:
        caught: their numbers, in their order.
    """

    def __init__(self) -> None:
        self.caught: list[int] = []
        self._raises = False

    @contextmanager
    def interruptible(self, *, enabled: bool = True) -> Iterator[None]:
        """A signal before or inside the block raises `Interrupted`. Outside, signals wait for the end of a step."""
        if not enabled:
            yield
            return
        self._raises = True
        try:
            if self.caught:
                raise Interrupted
            yield
        finally:
            self._raises = False

    def catch(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. A second signal of the same kind ends the process as usual."""
        self.caught.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if self._raises:
            raise Interrupted


@contextmanager
def caught_signals() -> Iterator[Signals]:
    """Catch SIGINT and SIGTERM inside the block."""
    signals = Signals()
    try:
        previous = {number: signal.signal(number, signals.catch) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # Python sets signal handlers in the main thread only
        previous = {}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
