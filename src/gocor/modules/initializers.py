"""Initial filter maps w⁰ (paper, appendix B).

The filters start as a combination of the pixel's own feature f and the spatial mean f̄ of the reference, such that
w⁰·f = β and w⁰·f̄ = γ. β and γ are learnt: scalars, or one value per channel in the flexible versions.
The paper divides the simple version by ‖f‖; published code, and the constraint w⁰·f = β, by ‖f‖².
"""

import torch
from torch import Tensor, nn

from ..ops.descent import rounding

INITIALIZERS = ("zero", "simple", "flexible-simple", "context", "flexible-context")


def build_initializer(name: str, channels: int | None, stabilizer: float) -> nn.Module:
    """An initialiser by name.

    Args:
        name: one of `INITIALIZERS`.
        channels: D, needed by the flexible versions only.
        stabilizer: ε that the simple versions add to the mean square of the feature.
    """
    if name == "zero":
        return ZeroInitializer()
    size = channels if name.startswith("flexible") and channels is not None else 1
    return SimpleInitializer(size, stabilizer) if name.endswith("simple") else ContextInitializer(size)


class ZeroInitializer(nn.Module):
    """w⁰ = 0."""

    def forward(self, reference: Tensor) -> Tensor:
        """`(B, D, H, W)` → `(B, D, H, W)`."""
        return torch.zeros_like(reference)


class SimpleInitializer(nn.Module):
    """w⁰ = β·f / (‖f‖² + D·ε)."""

    def __init__(self, size: int, stabilizer: float) -> None:
        super().__init__()
        self.stabilizer = stabilizer
        self.beta = nn.Parameter(torch.ones(size))

    def forward(self, reference: Tensor) -> Tensor:
        """`(B, D, H, W)` → `(B, D, H, W)`."""
        beta = self.beta.to(reference.dtype).view(-1, 1, 1)
        energy = reference.square().sum(1, keepdim=True) + reference.shape[1] * self.stabilizer
        return beta * (reference / energy)


class ContextInitializer(nn.Module):
    """w⁰ = [(β‖f̄‖² − γ f·f̄) f − (β f·f̄ − γ‖f‖²) f̄] / max(‖f‖²‖f̄‖² − (f·f̄)², 1e-6).

    The denominator is also clamped to its terms' rounding error: in a flat image f = f̄, and w⁰ would be noise.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.ones(size))
        self.gamma = nn.Parameter(torch.zeros(size))

    def forward(self, reference: Tensor) -> Tensor:
        """`(B, D, H, W)` → `(B, D, H, W)`."""
        beta, gamma = (p.to(reference.dtype).view(-1, 1, 1) for p in (self.beta, self.gamma))
        mean = reference.mean((2, 3), keepdim=True)
        ff = reference.square().sum(1, keepdim=True)
        mm = mean.square().sum(1, keepdim=True)
        fm = (reference * mean).sum(1, keepdim=True)
        least = (rounding.determinant_floor(reference.dtype) * ff * mm).clamp(min=1e-6)
        determinant = torch.maximum(ff * mm - fm.square(), least)
        return ((beta * mm - gamma * fm) * reference - (beta * fm - gamma * ff) * mean) / determinant
