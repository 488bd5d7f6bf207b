"""What `gocor match` is doing: a live line on a terminal, plain lines on stderr elsewhere.

Matching reports its stages to the logger `gocor.matching`, which knows nothing of terminals.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..utils.stages import stages_shown
from .errors import say

LOGGER = "gocor.matching"


@contextmanager
def show_stages(*, shown: bool) -> Iterator[Callable[[str], None]]:
    """Show what matching reports inside the block; yields the function that shows a stage of the caller's own."""
    if not shown:
        yield lambda _: None
        return
    with _live_line() if sys.stderr.isatty() else _plain_lines() as show, stages_shown(LOGGER, show):
        yield show


@contextmanager
def _plain_lines() -> Iterator[Callable[[str], None]]:
    yield lambda stage: say(f"{stage} …")


@contextmanager
def _live_line() -> Iterator[Callable[[str], None]]:
    """A line with the stage and the seconds since the start; it disappears at the end."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description} …", markup=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as line:
        task = line.add_task("starting", total=None)
        yield lambda stage: line.update(task, description=stage)
