"""Where Triton kernels can be used. Triton itself is imported when the first of them runs."""

from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
MAX_RADIUS, MAX_FUSED_RADIUS = 12, 4
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def can_correlate(features: Tensor, radius: int) -> bool:
    """Whether there are kernels for the local correlation of these features."""
    return HAS_TRITON and features.is_cuda and features.dtype in DTYPES and radius <= MAX_RADIUS


def can_descend(features: Tensor, radius: int) -> bool:
    """Whether there is a kernel for the iterations of local GOCor on these features."""
    return HAS_TRITON and features.is_cuda and features.dtype == torch.float32 and radius <= MAX_FUSED_RADIUS


@cache
def kernels() -> ModuleType:
    """The module of kernels."""
    from . import local_triton

    return local_triton
