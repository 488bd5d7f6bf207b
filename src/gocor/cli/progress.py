"""What `gocor match` prints: a line per pair, progress with rate and time left, and a summary."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import describe, say

if TYPE_CHECKING:
    from ..pipeline.job import Report
    from ..pipeline.run import Some
    from ..pipeline.stores import Store

LEGEND = "overlay.png: red is the reference, cyan the warped query; grey: both agree; dark red: no match in the query"
INTERVAL = 60.0  # seconds between lines of progress where there is no terminal


class Narrator:
    """Prints what becomes of pairs.

    Args:
        store: where they go.
        total: number of pairs.
        json: print one line of JSON per pair on stdout, and everything else on stderr.
        quiet: print warnings and errors only, and the lines of JSON.

    Attributes:
        failed: number of pairs that failed.
        only_error: the error of the pair if there is only one.
    """

    def __init__(self, store: "Store", total: int, *, json: bool, quiet: bool) -> None:
        self.store, self.total, self.json, self.quiet = store, total, json, quiet
        self.failed = self.done = 0
        self.only_error: Exception | None = None
        self._began = time.monotonic()
        self._ticker = Ticker(total, quiet=quiet)
        self._advance: Callable[[], None] = lambda: None

    def skip(self, todo: "Some") -> None:
        """Say which pairs were finished before."""
        skipped = self.total - len(todo)
        if not skipped:
            return
        if self.json:
            for pair in todo.others():
                _print_json(name=pair.name, status="skipped", place=self.store.place(pair))
            return
        if self.quiet:
            return
        only = next(iter(todo.pairs))
        which = f"{skipped} of {self.total} pairs are" if only.name else f"{self.store.place(only)} is"
        print(f"{which} finished already; use --overwrite to match again", flush=True)

    @contextmanager
    def progress(self, count: int) -> Iterator[None]:
        """Show the progress of so many pairs: a bar on a terminal, or a line each minute."""
        self._ticker, self._began = Ticker(count, quiet=self.quiet), time.monotonic()
        with progress_bar(count, shown=count > 1 and not self.quiet) as self._advance:
            yield

    def tell(self, report: "Report") -> None:
        """Print what became of a pair."""
        self.done += 1
        pair, result = report
        if isinstance(result, Exception):
            self.failed += 1
            if not pair.name:
                self.only_error = result
            if self.json:
                _print_json(name=pair.name, status="failed", error=describe(result))
            if pair.name:
                say(f"{pair.name}: {describe(result)}")
        elif self.json:
            facts = {"mean_confidence": result.confidence, "matches": result.matches}
            _print_json(
                name=pair.name, status="done", place=result.place, files=[str(f) for f in result.files], **facts
            )
        elif not self.quiet:
            # `print`, not `echo`: the progress bar moves down for lines of `print` only.
            print(f"{result.place}: mean confidence {result.confidence:.2f}", flush=True)
            for file in result.files if not pair.name else ():
                print(f"wrote {file}")
        self._show_progress()

    def summarise(self) -> None:
        """Say how long it took, for several pairs."""
        if self.done > 1 and not self.quiet:
            seconds = time.monotonic() - self._began
            matched = self.done - self.failed
            line = (
                f"{matched} pair{'s' * (matched != 1)} matched in {duration(seconds)}, {matched / seconds:.3g} a second"
            )
            print(line, file=sys.stderr if self.json else sys.stdout, flush=True)

    def explain_pictures(self, *, shown: bool) -> None:
        """Say what the colours of the overlay mean, if pictures were drawn."""
        if shown and self.done and not self.json and not self.quiet:
            print(LEGEND, flush=True)

    def _show_progress(self) -> None:
        self._advance()
        self._ticker.tick()


class Ticker:
    """Prints a line of progress each minute where there is no terminal, and hence no progress bar.

    Args:
        count: number of pairs.
        quiet: print nothing.
    """

    def __init__(self, count: int, *, quiet: bool) -> None:
        self._count, self._quiet, self._done = count, quiet, 0
        self._began = self._last = time.monotonic()

    def tick(self) -> None:
        """Count one pair as done."""
        self._done += 1
        now = time.monotonic()
        if not self._quiet and not on_terminal() and now - self._last >= INTERVAL and self._done < self._count:
            self._last = now
            rate = self._done / (now - self._began)
            left = duration((self._count - self._done) / rate)
            say(f"{self._done} of {self._count} pairs, {rate:.3g} a second, {left} left")


def duration(seconds: float) -> str:
    """A time in words, with two units: `3 d 4 h`, `2 h 5 min`, `1 min 20 s`, `4.2 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    if minutes < 60:
        return f"{int(minutes)} min {int(seconds) % 60} s"
    hours = minutes / 60
    return f"{int(hours)} h {int(minutes) % 60} min" if hours < 24 else f"{int(hours / 24)} d {int(hours) % 24} h"


def _print_json(**entries: Any) -> None:
    print(json.dumps(entries, ensure_ascii=False), flush=True)


def on_terminal() -> bool:
    """Whether stdout and stderr both are terminals."""
    return sys.stdout.isatty() and sys.stderr.isatty()


@contextmanager
def progress_bar(total: int, *, shown: bool) -> Iterator[Callable[[], None]]:
    """A progress bar for terminals with the rate and the time left; yields the function that advances it by one."""
    if not (shown and on_terminal()):
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.3g} pairs/s" if task.speed else "")

    columns = (
        TextColumn("matching"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TextColumn("left:"),
        Remaining(elapsed_when_finished=True),
    )
    with Progress(*columns, speed_estimate_period=120) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
