"""The learnt parts of the objective that a GOCor module minimises (paper, eq. 3 and 7).

    L(w) = ½‖σ_η(C(w, f^r); v⁺, v⁻) − y‖² + ½‖R ∗ C(w, f^q)‖² + ½λ²‖w‖²

The first term is L_r (eq. 5) with the robust function σ_η (eq. 4), the second L_q (eq. 6). The paper writes the three
terms without ½ and yet divides by ‖J∇L‖². Taken literally, that doubles the optimal step. Published code uses the ½,
and so do we.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..ops.descent.reference import Coefficients
from ..ops.descent.smoothing import smooth, smooth_adjoint
from .basis import triangular_basis


class TargetMaps(NamedTuple):
    """y′, v⁺ and m of the reference objective, by pair of pixels: y = v⁺·target, v⁻ = v⁺·mask."""

    target: Tensor
    weight: Tensor
    mask: Tensor

    def coefficients(self) -> Coefficients:
        """The coefficients of the residual."""
        half = self.weight / 2
        tilt = half * self.mask
        return Coefficients(half - tilt, half + tilt, self.weight * self.target)


class ReferenceObjective(nn.Module):
    """Robust, learnt reference objective (paper, eq. 5 and appendix C).

    Parameters, one coefficient per knot of the distance basis:
        target: y′, started from a Gaussian of the distance, its minimum subtracted (as in published code).
        weight: v⁺, started from ones. It is not constrained and may become negative.
        mask: logits of m = v⁻/v⁺, started from 4·tanh(2 − d); the sigmoid is applied after interpolation.
    """

    def __init__(self, *, knots: int = 10, spacing: float = 0.5, target_sigma: float = 1.0, eta: float = 0.0) -> None:
        super().__init__()
        self.knots, self.spacing, self.eta = knots, spacing, eta
        self.reach = (knots - 1) * spacing  # the maps are constant from this distance on
        distance = spacing * torch.arange(knots, dtype=torch.float64)
        if target_sigma > 0:
            gauss = torch.exp(-0.5 * (distance / target_sigma).square())
            target = gauss - gauss.min()
        else:
            target = (distance == 0).double()
        self.target = nn.Parameter(target.float())
        self.weight = nn.Parameter(torch.ones(knots))
        self.mask = nn.Parameter((4 * torch.tanh(2 - distance)).float())

    def maps(self, distance: Tensor) -> TargetMaps:
        """y′, v⁺ and m at the given distances, each in their shape and dtype."""
        basis = triangular_basis(distance, self.knots, self.spacing)
        coefficients = torch.stack([self.target, self.weight, self.mask], -1).to(distance.dtype)
        target, weight, logits = (basis @ coefficients).unbind(-1)
        return TargetMaps(target, weight, logits.sigmoid())


class QuadraticObjective(nn.Module):
    """The plain quadratic objective ‖C(w, f^r) − δ‖² (the paper's "linear regression" ablation). Nothing is learnt."""

    eta, reach = 0.0, 1.0

    def maps(self, distance: Tensor) -> TargetMaps:
        """δ, 1 and 1 at the given distances."""
        ones = torch.ones_like(distance)
        return TargetMaps((distance == 0).to(distance.dtype), ones, ones)


class QueryObjective(nn.Module):
    """The learnt linear operator R of the query objective (paper, eq. 6), see `ops.descent.smoothing`.

    Args:
        kernel: odd side of both kernels.
        inter: channels between the two.
        out: output channels Q.
    """

    def __init__(self, *, kernel: int = 3, inter: int = 16, out: int = 16) -> None:
        super().__init__()
        self.weight1 = nn.Parameter(1e-3 * torch.randn(inter, 1, kernel, kernel))
        self.weight2 = nn.Parameter(1e-3 * torch.randn(out, inter, kernel, kernel))

    def forward(self, volume: Tensor) -> Tensor:
        """R ∗ volume: `(B, U1, U2, V1, V2)` → `(B, V1, V2, Q, U1, U2)`."""
        return smooth(volume, self.weight1.to(volume.dtype), self.weight2.to(volume.dtype))

    def adjoint(self, smoothed: Tensor) -> Tensor:
        """Rᵀ: `(B, V1, V2, Q, U1, U2)` → `(B, U1, U2, V1, V2)`."""
        return smooth_adjoint(smoothed, self.weight1.to(smoothed.dtype), self.weight2.to(smoothed.dtype))
