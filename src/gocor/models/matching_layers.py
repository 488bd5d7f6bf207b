"""Correlation layers as the networks use them: normalisation before, filtering and non-linearity after."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..utils.checks import check_choice
from .consensus import NeighbourhoodConsensus, mutual_matching

Filtering = Literal["none", "mutual", "consensus"]
Activation = Literal["relu-l2", "leaky-relu"]


class GlobalMatching(nn.Module):
    """L2-normalised features → global correlation → filtering → non-linearity.

    Args:
        correlation: the layer: `GlobalFeatureCorrelation`, `GlobalGOCor` or one of your own with their interface.
        filtering: what follows: nothing, mutual matching (GLU-Net's cyclic consistency) or NC-Net's consensus.
        activation: `"relu-l2"`, ReLU and L2 normalisation over channels, which suits plain correlation, or
            `"leaky-relu"`, which suits GOCor (paper, appendix D).
    """

    def __init__(self, correlation: nn.Module, *, filtering: Filtering, activation: Activation) -> None:
        super().__init__()
        check_choice("filtering", filtering, ("none", "mutual", "consensus"))
        check_choice("activation", activation, ("relu-l2", "leaky-relu"))
        self.correlation = correlation
        self.filtering, self.activation = filtering, activation
        self.consensus = NeighbourhoodConsensus() if filtering == "consensus" else None

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """`(B, C, H, W)` twice → `(B, H·W, H, W)`, float32 inside autocast: ratios of scores need the digits."""
        precision = torch.promote_types(reference.dtype, torch.float32)
        with torch.autocast(reference.device.type, enabled=False):
            reference, query = (l2_normalize(x.to(precision)) for x in (reference, query))
            volume = self.correlation(reference, query, iters)
            if self.filtering == "mutual":
                volume = mutual_matching(volume)
            elif self.consensus is not None:
                volume = self.consensus(volume, (query.shape[2], query.shape[3]))
            return l2_normalize(volume.relu()) if self.activation == "relu-l2" else F.leaky_relu(volume, 0.1)


class LocalMatching(nn.Module):
    """Local correlation and LeakyReLU(0.1). Features are taken as they are.

    Args:
        correlation: the layer: `LocalFeatureCorrelation`, `LocalGOCor` or one of your own with their interface.
    """

    def __init__(self, correlation: nn.Module) -> None:
        super().__init__()
        self.correlation = correlation

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """`(B, C, H, W)` twice → `(B, (2R+1)², H, W)`."""
        return F.leaky_relu(self.correlation(reference, query, iters), 0.1)


def l2_normalize(x: Tensor) -> Tensor:
    """`x / √(Σ_c x² + 1e-6)`, as in the published networks."""
    return x / (x.square().sum(1, keepdim=True) + 1e-6).sqrt()


def mapping_to_pixels(mapping: Tensor) -> Tensor:
    """Normalised mapping in [−1, 1]² → flow in pixels of its own grid, `(B, 2, H, W)` both."""
    height, width = mapping.shape[2:]
    x = torch.arange(width, dtype=mapping.dtype, device=mapping.device)
    y = torch.arange(height, dtype=mapping.dtype, device=mapping.device).unsqueeze(1)
    return torch.stack([(mapping[:, 0] + 1) * ((width - 1) / 2) - x, (mapping[:, 1] + 1) * ((height - 1) / 2) - y], 1)
