"""Numerical precision: whether a CPU is fast in bfloat16, and settings of a GPU for the duration of a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def cpu_multiplies_bfloat16() -> bool:
    """Whether the CPU has instructions for products of bfloat16 numbers; `False` if torch is too old to know."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


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
