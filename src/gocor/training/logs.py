"""What a run tells: a record a line in `log.jsonl`, TensorBoard's files, and progress on the terminal."""

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..utils.files import write_bytes_atomically
from .events import EventWriter

FILE = "log.jsonl"


def trim_log(path: Path, step: int) -> None:
    """Drop records of steps after `step`, which will be taken again, and a last line that was cut short."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except json.JSONDecodeError:
            continue
    write_bytes_atomically(path, "".join(kept).encode())


class RunLog:
    """The log of one process's part of a run.

    Args:
        folder: of the run.
        step: where this part begins.
        total: steps of the whole run.
        minutes: its time limit, if it has one.
        quiet: print nothing.
    """

    def __init__(
        self, folder: Path, *, step: int, total: int, minutes: float | None = None, quiet: bool = False
    ) -> None:
        trim_log(folder / FILE, step)
        self.file = (folder / FILE).open("a")
        self.events = EventWriter(folder, step=step)
        self.quiet = quiet
        self.bar = ProgressBar(step, total) if not quiet and sys.stderr.isatty() else None
        self.total, self.minutes, self.started, self.first = total, minutes, time.monotonic(), step

    def record(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        """Numbers at a step, of training (`"train"`) or validation; NaN and infinity are written as null."""
        line: dict[str, Any] = {"step": step, "kind": kind}
        line |= {key: value if math.isfinite(value) else None for key, value in values.items()}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        self.events.scalars(step, {f"{kind}/{key}": value for key, value in values.items()})
        shown = "  ".join(f"{key} {_short(value)}" for key, value in values.items())
        if kind != "train":
            self.say(f"step {step}: {kind} {shown}")
        elif self.bar is None:
            self.say(f"step {step}/{self.total}  {shown}  {self._left(step, values)}")

    def picture(self, step: int, tag: str, png: bytes, size: tuple[int, int]) -> None:
        """A PNG picture at a step."""
        self.events.picture(step, tag, png, size)

    def advance(self, step: int, values: Mapping[str, float]) -> None:
        """Show a step on the bar, with the latest numbers."""
        if self.bar is not None:
            shown = [f"{key} {_short(values[key])}" for key in ("loss", "epe") if key in values]
            self.bar.show(step, "  ".join([*shown, self._left(step, values)]))

    def say(self, message: str) -> None:
        """One line to the user."""
        if not self.quiet:
            print(message, flush=True)

    def close(self) -> None:
        """Close the files and end the bar."""
        if self.bar is not None:
            self.bar.close()
        self.file.close()
        self.events.close()

    def _left(self, step: int, values: Mapping[str, float]) -> str:
        left = (time.monotonic() - self.started) / max(step - self.first, 1) * (self.total - step)
        if self.minutes is not None:
            left = min(left, 60 * max(0.0, self.minutes - values.get("minutes", 0.0)))
        seconds = round(left)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"


class ProgressBar:
    """Steps on a terminal."""

    def __init__(self, step: int, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.task = self.progress.add_task("", total=total, completed=step)
        self.progress.start()

    def show(self, step: int, text: str) -> None:
        """Move on to a step."""
        self.progress.update(self.task, completed=step, description=text)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.progress.stop()


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"
