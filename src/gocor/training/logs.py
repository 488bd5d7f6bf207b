"""What a run reports: records in `log.jsonl`, TensorBoard event files, and progress on the terminal."""

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..utils.documents import parse_json
from ..utils.errors import InputError
from ..utils.files import read_bytes, write_bytes_atomically

if TYPE_CHECKING:
    from rich.progress import Progress
    from torch.utils.tensorboard import SummaryWriter

FILE = "log.jsonl"
SILENCE = 10.0  # seconds after which a step prints a line of its own
NO_TENSORBOARD = "no TensorBoard files are written: TensorBoard is not installed (pip install 'gocor[tensorboard]')"


class RunLog:
    """The log of one process's part of a run.

    Records and events of steps after `step` are dropped from the folder, because these steps are taken again.

    Args:
        folder: folder of the run.
        step: number of steps that were taken before.
        total: number of steps of the whole run.
        validated: whether the validation of `step`, if there is one, is complete.
        minutes: time limit of the run, if it has one.
        quiet: print nothing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        step: int,
        total: int,
        validated: bool = True,
        minutes: float | None = None,
        quiet: bool = False,
    ) -> None:
        trim_log(folder / FILE, step, validated=validated)
        self.file = (folder / FILE).open("a")
        self.events = _event_writer(folder, step)
        self.quiet = quiet
        self.bar = _progress_bar(step, total) if not quiet and sys.stderr.isatty() else None
        self.total, self.minutes, self.started, self.first = total, minutes, time.monotonic(), step
        self.printed_at, self.printed_step = -math.inf, step

    def record(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        """Log numbers of a step's `"train"`, `"validation"` or `"evaluation"`. NaN and infinity are written as null."""
        line: dict[str, Any] = {"step": step, "kind": kind}
        line |= {key: value if math.isfinite(value) else None for key, value in values.items()}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        if self.events is not None:
            for key, value in values.items():
                self.events.add_scalar(f"{kind}/{key}", value, step)
            self.events.flush()
        shown = "  ".join(f"{key} {_short(value)}" for key, value in values.items())
        if kind != "train":
            self.say(f"step {step}: {kind} {shown}")
        elif self.bar is None:
            self._say_step(step, shown, values)

    def picture(self, step: int, tag: str, picture: NDArray[np.uint8]) -> None:
        """Show an RGB picture `(H, W, 3)` in TensorBoard."""
        if self.events is not None:
            self.events.add_image(tag, picture, step, dataformats="HWC")
            self.events.flush()

    def advance(self, step: int, values: Mapping[str, float]) -> None:
        """Move the progress bar to a step and show the latest numbers beside it.

        Without a terminal, print a line at the first step, and when no line was printed for a while.
        """
        if self.bar is None and step > self.printed_step and time.monotonic() - self.printed_at > SILENCE:
            pace = (time.monotonic() - self.started) / max(step - self.first, 1)
            self._say_step(step, f"{pace:.2g} s a step", values)
        if self.bar is not None:
            shown = [f"{key} {_short(values[key])}" for key in ("loss", "epe") if key in values]
            text = "  ".join([*shown, self._time_left(step, values)])
            self.bar.update(self.bar.task_ids[0], completed=step, description=text)

    def begin_validation(self, step: int, pairs: int) -> None:
        """Say that a validation begins: on a CPU it can take longer than many steps."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], description=f"validating on {pairs} pairs …")
        else:
            self.say(f"step {step}: validating on {pairs} pairs …")

    def say(self, message: str) -> None:
        """Print one line."""
        if not self.quiet:
            print(message, flush=True)

    def close(self) -> None:
        """Close the files and stop the progress bar."""
        if self.bar is not None:
            self.bar.stop()
        self.file.close()
        if self.events is not None:
            self.events.close()

    def _say_step(self, step: int, shown: str, values: Mapping[str, float]) -> None:
        self.printed_at, self.printed_step = time.monotonic(), step
        self.say(f"step {step}/{self.total}  {shown}  {self._time_left(step, values)}")

    def _time_left(self, step: int, values: Mapping[str, float]) -> str:
        left = (time.monotonic() - self.started) / max(step - self.first, 1) * (self.total - step)
        if self.minutes is not None:
            left = min(left, 60 * max(0.0, self.minutes - values.get("minutes", 0.0)))
        seconds = round(left)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"


def slow_cpu_hint(hours: float) -> str:
    """What to do about a run that takes long on a CPU."""
    return (
        f"about {hours:.0f} hours on this CPU: a GPU is much faster (--device cuda), a smaller --size takes less time, "
        "and --time-limit 60 --set schedule_by=time fits the whole schedule into an hour"
    )


def trim_log(path: Path, step: int, *, validated: bool = True) -> None:
    """Remove from a log what is going to be recorded again, and a last line that was not written to its end.

    These are records of steps after `step`, and of the validation of `step` unless it is complete.
    """
    if not path.exists():
        return
    kept = []
    data = read_bytes(path) if path.stat().st_size else b""
    for line in data.decode(errors="replace").splitlines():
        try:
            record = parse_json(line)
            if record["step"] < step or (record["step"] == step and (validated or record["kind"] == "train")):
                kept.append(line + "\n")
        except (InputError, KeyError, TypeError):  # not a record
            continue
    write_bytes_atomically(path, "".join(kept).encode())


def _event_writer(folder: Path, step: int) -> "SummaryWriter | None":
    """A writer of TensorBoard events, or `None` if the extra `tensorboard` is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(folder, purge_step=step + 1)  # TensorBoard drops earlier events from this step on


def _progress_bar(step: int, total: int) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=Console(stderr=True))
    bar.add_task("first step …", total=total, completed=step)
    bar.start()
    return bar


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"
