"""Where a number is but the rounding of what it is made of: in flat regions, all features are the same."""

import torch


def of_determinant(dtype: torch.dtype) -> float:
    """Share of ‖f‖²‖m‖² below which ‖f‖²‖m‖² − (f·m)² is but rounding."""
    return 16 * torch.finfo(dtype).eps


def of_gradient(dtype: torch.dtype, *, by_products: bool = True) -> float:
    """Share of Σ u²‖f‖² below which ‖F·u‖² is but rounding: made by scalar products of features, uᵀGu, or by them."""
    eps = torch.finfo(dtype).eps
    return 32 * eps if by_products else (256 * eps) ** 2
