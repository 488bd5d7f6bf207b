"""Messages of a logger, passed to a function that shows them on a terminal or a web page."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Shown(logging.Handler):
    """Passes the messages of a logger to a function."""

    def __init__(self, show: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        self.show(record.getMessage())


@contextmanager
def stages_shown(name: str, show: Callable[[str], object]) -> Iterator[None]:
    """Inside the block, messages of a logger at level INFO or above go to a function and not to other loggers.

    Args:
        name: name of the logger.
        show: function that takes a message.
    """
    logger, handler = logging.getLogger(name), _Shown(show)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
