"""Timing of variants against each other (medians of calls in turns, by CUDA events on a GPU) and of stages."""

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

Name = TypeVar("Name", bound=Hashable)


class Stages:
    """Seconds that were spent in each stage of the work, by name, over all threads.

    Attributes:
        seconds: so far. The time of a stage inside another one counts for the inner stage alone.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    @contextmanager
    def measure(self, name: str, *, host: bool = False) -> Iterator[None]:
        """Count the time of the block for a stage; `stage` inside the block counts for this object too.

        Args:
            name: name of the stage.
            host: whether the block uses the CPU alone, so that no work of other threads on a GPU is waited for.
        """
        now = time.perf_counter if host else _now
        inner: dict[str, float] = defaultdict(float)
        token = _inner_stages.set(inner)
        begin = now()
        try:
            yield
        finally:
            _inner_stages.reset(token)
            inner[name] += now() - begin - sum(inner.values())
            with self._lock:
                for key, seconds in inner.items():
                    self.seconds[key] += seconds


_inner_stages: ContextVar[dict[str, float] | None] = ContextVar("inner_stages", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the time of the block for a stage of its own if a `Stages.measure` is around it; otherwise do nothing."""
    seconds = _inner_stages.get()
    if seconds is None:
        yield
        return
    begin = _now()
    try:
        yield
    finally:
        seconds[name] += _now() - begin


def _now() -> float:
    """The time in seconds when all GPU work that was launched so far is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def compare(
    variants: Mapping[Name, Callable[[], object]], device: torch.device | str, repeats: int
) -> dict[Name, float]:
    """Median milliseconds of each variant.

    The variants are called in turns, so that other load on the machine affects all of them alike.

    Args:
        variants: functions to time, by name.
        device: device that they run on.
        repeats: timed calls of each, after warm-up calls: one on a CPU, three on a GPU.
    """
    on_gpu = torch.device(device).type == "cuda"
    for call in variants.values():
        for _ in range(3 if on_gpu else 1):
            call()
    if on_gpu:
        torch.cuda.synchronize()
    times: dict[Name, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, call in variants.items():
            times[name].append(_gpu_milliseconds(call) if on_gpu else _milliseconds(call))
    return {name: statistics.median(values) for name, values in times.items()}


def _milliseconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def _gpu_milliseconds(call: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)
