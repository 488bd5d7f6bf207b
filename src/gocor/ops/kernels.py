"""Where Triton kernels can be used. Triton itself is imported when the first of them runs."""

import os
import shutil
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

# Triton builds its launchers with a C compiler; a machine without one keeps to plain torch.
_COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
HAS_TRITON = find_spec("triton") is not None and _COMPILER is not None
MAX_RADIUS = 16
MAX_FUSED_RADIUS = MAX_RADIUS // 2  # its autocorrelation reaches twice as far
MAX_TILE_RADIUS = 4  # eight columns of locations reach sixteen of features
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@cache
def supported(device: torch.device) -> bool:
    """Whether a device can run the kernels: an NVIDIA GPU with TF32 units (or, in tests, Triton's interpreter)."""
    if device.type != "cuda":
        return True
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def can_correlate(features: Tensor, radius: int) -> bool:
    """Whether there are kernels for the local correlation of these features."""
    fits = HAS_TRITON and features.is_cuda and features.dtype in DTYPES and radius <= MAX_RADIUS
    return fits and supported(features.device)


def can_descend(features: Tensor, radius: int) -> bool:
    """Whether there is a kernel for the iterations of local GOCor on these features.

    The device is asked when the operator runs, so that this can be traced.
    """
    return HAS_TRITON and features.is_cuda and features.dtype in DTYPES and radius <= MAX_FUSED_RADIUS


def can_tile(features: Tensor, radius: int) -> bool:
    """Whether the kernel on matrix units takes these features; the device is asked when the operator runs."""
    channels = 256 if features.dtype == torch.bfloat16 else 128
    return can_descend(features, radius) and radius <= MAX_TILE_RADIUS and features.shape[1] <= channels


@cache
def kernels() -> ModuleType:
    """Kernels of local correlation."""
    from .correlation import triton as local_triton

    return local_triton


@cache
def gram_kernels() -> ModuleType:
    """Kernels of local GOCor's iterations."""
    from .descent import local_gram_triton as gram_triton

    return gram_triton


@cache
def tile_kernels() -> ModuleType:
    """Kernels of local GOCor without gradients."""
    from .descent import local_tile_triton as tile_triton

    return tile_triton


def can_smooth(volume: Tensor, first: Tensor, second: Tensor) -> bool:
    """Whether there are kernels for the query term's operator with these weights `(I, 1, k, k)`, `(O, I, k, k)`."""
    fits = HAS_TRITON and volume.is_cuda and volume.dtype == torch.float32 and _sizes_fit(first, second)
    return fits and supported(volume.device)


def _sizes_fit(first: Tensor, second: Tensor) -> bool:
    return first.shape[2] == 3 and {*second.shape[:2]} <= {16, 32, 64}


@cache
def smoothing_kernels() -> ModuleType:
    """Kernels of the query term's operator."""
    from .descent import smoothing_triton

    return smoothing_triton


def can_descend_globally(features: Tensor, regularizer: tuple[Tensor, Tensor] | None) -> bool:
    """Whether there are kernels for global GOCor without gradients on these features, with R's weights if it has R."""
    if not (HAS_TRITON and features.is_cuda and features.dtype in DTYPES and supported(features.device)):
        return False
    return regularizer is None or _sizes_fit(*regularizer)


@cache
def global_kernels() -> ModuleType:
    """Kernels of global GOCor."""
    from .descent import global_triton

    return global_triton
