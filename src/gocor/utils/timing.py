"""Timing of variants against each other: medians of calls in turns, by CUDA events on a GPU."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch

Name = TypeVar("Name", bound=Hashable)


def compare(
    variants: Mapping[Name, Callable[[], object]], device: torch.device | str, repeats: int
) -> dict[Name, float]:
    """Median milliseconds of each variant.

    The variants are called in turns, so that other load on the machine affects all of them alike.

    Args:
        variants: functions to time, by name.
        device: that they run on.
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
