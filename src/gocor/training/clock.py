"""Times of a run: training time, time since the last checkpoint, and throughput."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """The times of one process's part of a run.

    Args:
        seconds: seconds of training before this part.
        step: steps that were taken before.
    """

    def __init__(self, seconds: float, step: int) -> None:
        self.seconds_before = seconds
        self.process_start = self.training_start = self.checkpoint = time.monotonic()
        self.rate_start, self.rate_step = self.training_start, step
        self.first_step = step + 1

    @property
    def elapsed(self) -> float:
        """Seconds since this process began."""
        return time.monotonic() - self.process_start

    @property
    def trained(self) -> float:
        """Seconds of training, those of earlier parts of the run included."""
        return self.seconds_before + time.monotonic() - self.training_start

    @property
    def since_checkpoint(self) -> float:
        """Seconds since the last checkpoint."""
        return time.monotonic() - self.checkpoint

    def start_training(self) -> None:
        """Begin to count training time now: so far, kernels were compiled and nothing was trained."""
        self.training_start = self.rate_start = time.monotonic()

    def steps_per_second(self, step: int) -> float:
        """Throughput between the last call and now, when `step` steps have been taken."""
        now = time.monotonic()
        rate = (step - self.rate_step) / (now - self.rate_start)
        self.rate_start, self.rate_step = now, step
        return rate

    @contextmanager
    def writing_checkpoint(self) -> Iterator[None]:
        """Validation and the writing of a checkpoint, whose time does not lower the throughput."""
        start = time.monotonic()
        yield
        self.checkpoint = time.monotonic()
        self.rate_start += self.checkpoint - start
