"""Numerical precision and cuDNN autotuning on a GPU, set for the duration of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def fast_math(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """Enable cuDNN autotuning, and TF32 for float32 matrix products if `tf32`, inside the block on a GPU."""
    precision = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with cudnn_benchmark(device.type == "cuda"):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def cudnn_benchmark(enabled: bool) -> Iterator[None]:
    """Switch cuDNN autotuning on or off inside the block. It saves time only if input sizes recur many times."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = enabled
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
