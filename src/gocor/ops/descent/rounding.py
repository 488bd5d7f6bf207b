"""Thresholds below which a value is rounding error. Flat regions, where all features are equal, produce such values."""

import torch


def determinant_floor(dtype: torch.dtype) -> float:
    """Share of ‖f‖²‖m‖² below which ‖f‖²‖m‖² − (f·m)² is rounding error."""
    return 16 * torch.finfo(dtype).eps


def gradient_floor(dtype: torch.dtype, *, by_products: bool = True) -> float:
    """Share of Σ u²‖f‖² below which ‖F·u‖² is rounding error.

    Args:
        dtype: dtype of the computation.
        by_products: whether ‖F·u‖² is computed as uᵀ(FᵀF)u, from scalar products of features, or from F·u itself.
    """
    eps = torch.finfo(dtype).eps
    return 32 * eps if by_products else (256 * eps) ** 2


def step_floor(dtype: torch.dtype) -> float:
    """Floor of the step's denominator that only excludes 0/0 and denormal numbers."""
    return torch.finfo(dtype).tiny * 1e8
