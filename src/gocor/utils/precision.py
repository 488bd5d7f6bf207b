"""Numerical precision and algorithm choice on a GPU, set for the time of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def fast_math(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """Enable TF32 (if asked) and cuDNN's algorithm search inside the block, on a GPU."""
    precision = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with algorithm_search(device.type == "cuda"):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def algorithm_search(on: bool) -> Iterator[None]:
    """Switch cuDNN's algorithm search on or off inside the block. It pays for sizes that occur often."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
