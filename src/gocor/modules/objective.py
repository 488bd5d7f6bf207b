"""The objective that a GOCor module minimises: reference term, query term, regulariser.

    L(w) = ½‖σ_η(C(w, f^r); v⁺, v⁻) − y‖² + ½‖R ∗ C(w, f^q)‖² + ½λ²‖w‖²      (paper, eq. 4 to 7, with ½)

The paper writes the three terms without ½ and yet divides by ‖J∇L‖²: taken literally that doubles the optimal step.
Published code uses the ½ convention, and so do we.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .basis import triangular_basis


class Coefficients(NamedTuple):
    """The same for all iterations: v⁺(1 − m)/2, v⁺(1 + m)/2 and v⁺y′."""

    bend: Tensor
    slant: Tensor
    goal: Tensor


class TargetMaps(NamedTuple):
    """What the reference term asks for, by pair of pixels: y = v⁺·target, v⁻ = v⁺·mask."""

    target: Tensor
    weight: Tensor
    mask: Tensor

    def coefficients(self) -> Coefficients:
        """What `residual_and_slope` takes."""
        half = self.weight / 2
        tilt = half * self.mask
        return Coefficients(half - tilt, half + tilt, self.weight * self.target)


class ReferenceObjective(nn.Module):
    """Robust, learnt reference term (paper, sec. 3.4 and appendix C).

    Parameters, one coefficient per knot of the distance basis:
        target: y′, started from a Gaussian of the distance, its minimum subtracted (as in published code).
        weight: v⁺, started from ones. It is not constrained and may become negative.
        mask: logits of m = v⁻/v⁺, started from 4·tanh(2 − d); the sigmoid is applied after interpolation.
    """

    def __init__(self, *, knots: int = 10, spacing: float = 0.5, target_sigma: float = 1.0, eta: float = 0.0) -> None:
        super().__init__()
        self.knots, self.spacing, self.eta = knots, spacing, eta
        self.reach = (knots - 1) * spacing  # maps are the same from this distance on
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


def residual_and_slope(scores: Tensor, coefficients: Coefficients, eta: float) -> tuple[Tensor, Tensor]:
    """Residual r = v⁺(σ_η(c; m) − y′) of the reference term, and its derivative v⁺σ_η′ by the score c.

    `σ_η(c; m) = (1−m)/2 · (√(c²+η²) − η) + (1+m)/2 · c` (paper, eq. 3). With η = 0 this is c for c ≥ 0 and m·c for
    c < 0; its derivative at zero is taken as (1+m)/2. (The appendix has the derivative depend on C − y, against its own
    eq. 3 and against published code: it depends on C.)

    Shapes: scores `(B, K, H, W)`, coefficients broadcastable to them; both results `(B, K, H, W)`.
    """
    bend, slant, goal = coefficients
    if eta == 0:  # |c| = sign(c)·c, so the slope gives the residual too, in fewer passes over the scores
        slope = bend * scores.sign() + slant
        return slope * scores - goal, slope
    root = (scores.square() + eta * eta).sqrt()
    residual = bend * (root - eta) + slant * scores - goal
    return residual, bend * (scores / root) + slant


class QueryRegularizer(nn.Module):
    """The learnt linear operator R of the query term: a 4-D convolution, factorised into two 2-D ones.

    No bias, zero padding and nothing between the two, so that R is linear and has an exact adjoint. The first kernel
    acts on the last two dimensions (the query's, in a global volume), the second on the first two. So it is in
    published code; the paper says it the other way round.

    Args:
        kernel: odd side K of both kernels.
        inter: channels between the two.
        out: output channels Q.
    """

    def __init__(self, *, kernel: int = 3, inter: int = 16, out: int = 16) -> None:
        super().__init__()
        self.padding = kernel // 2
        self.weight1 = nn.Parameter(1e-3 * torch.randn(inter, 1, kernel, kernel))
        self.weight2 = nn.Parameter(1e-3 * torch.randn(out, inter, kernel, kernel))

    def forward(self, volume: Tensor) -> Tensor:
        """R ∗ volume: `(B, U1, U2, V1, V2)` → `(B, V1, V2, Q, U1, U2)`."""
        batch, *first, v1, v2 = volume.shape
        w1, w2 = self.weight1.to(volume.dtype), self.weight2.to(volume.dtype)
        x = F.conv2d(volume.flatten(0, 2).unsqueeze(1), w1, padding=self.padding)  # (B·U1·U2, inter, V1, V2)
        x = x.view(batch, *first, len(w1), v1, v2).permute(0, 4, 5, 3, 1, 2)  # (B, V1, V2, inter, U1, U2)
        x = F.conv2d(x.flatten(0, 2), w2, padding=self.padding)
        return x.view(batch, v1, v2, len(w2), *first)

    def adjoint(self, smoothed: Tensor) -> Tensor:
        """Rᵀ: `(B, V1, V2, Q, U1, U2)` → `(B, U1, U2, V1, V2)`."""
        batch, v1, v2, _, *first = smoothed.shape
        w1, w2 = self.weight1.to(smoothed.dtype), self.weight2.to(smoothed.dtype)
        x = F.conv_transpose2d(smoothed.flatten(0, 2), w2, padding=self.padding)
        x = x.view(batch, v1, v2, len(w1), *first).permute(0, 4, 5, 3, 1, 2)  # (B, U1, U2, inter, V1, V2)
        x = F.conv_transpose2d(x.flatten(0, 2), w1, padding=self.padding)
        return x.view(batch, *first, v1, v2)
