"""The log of `gocor --verbose`: what the package reports at level DEBUG, and the traceback of a user error."""

import logging
import sys

logger = logging.getLogger("gocor")


class _Stderr(logging.Handler):
    """Prints records as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"gocor: {self.format(record)}", file=sys.stderr)


def start_log() -> None:
    """Print what the logger `gocor` reports, at any level, on stderr."""
    logger.addHandler(_Stderr(logging.DEBUG))
    logger.setLevel(logging.DEBUG)


def stop_log() -> None:
    """Undo `start_log`."""
    for handler in [handler for handler in logger.handlers if isinstance(handler, _Stderr)]:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def log_traceback(error: Exception) -> None:
    """Report the traceback of an error that a user sees as one line."""
    logger.debug("%s", type(error).__name__, exc_info=error)
