"""One way to time: medians, the variants of a comparison taking turns, CUDA events on a GPU."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch

Name = TypeVar("Name", bound=Hashable)


def once(call: Callable[[], object], device: torch.device | str) -> float:
    """Milliseconds of one call."""
    if torch.device(device).type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def compare(
    variants: Mapping[Name, Callable[[], object]], device: torch.device | str, repeats: int
) -> dict[Name, float]:
    """Median milliseconds of each variant; they take turns, so that a slow moment of the machine meets all of them.

    Args:
        variants: what to time, by name.
        device: where it runs.
        repeats: timed calls of each, after calls that don't count: one on a CPU, three on a GPU.
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
            times[name].append(once(call, device))
    return {name: statistics.median(values) for name, values in times.items()}
