"""Correlation layers with the normalisation before and the filtering and non-linearity after them."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.warp import warp
from ..utils.checks import check_choice
from .consensus import NeighbourhoodConsensus, mutual_matching

Filtering = Literal["none", "mutual", "consensus"]
Activation = Literal["relu-l2", "leaky-relu"]


class GlobalMatching(nn.Module):
    """L2-normalised features → global correlation → filtering → non-linearity.

    Args:
        correlation: `GlobalFeatureCorrelation`, `GlobalGOCor` or a layer with the same interface.
        filtering: nothing, mutual matching (GLU-Net's cyclic consistency) or NC-Net's consensus.
        activation: `"relu-l2"`, ReLU and L2 normalisation over channels, for plain correlation, or `"leaky-relu"` for
            GOCor (paper, appendix D).
    """

    def __init__(self, correlation: nn.Module, *, filtering: Filtering, activation: Activation) -> None:
        super().__init__()
        check_choice("filtering", filtering, ("none", "mutual", "consensus"))
        check_choice("activation", activation, ("relu-l2", "leaky-relu"))
        self.correlation = correlation
        self.filtering, self.activation = filtering, activation
        self.consensus = NeighbourhoodConsensus() if filtering == "consensus" else None

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """`(B, C, H, W)` twice → `(B, H·W, H, W)`; in float32 inside autocast, because ratios of scores need it."""
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
    """Local correlation of features that are not normalised, and LeakyReLU(0.1).

    Args:
        correlation: `LocalFeatureCorrelation`, `LocalGOCor` or a layer with the same interface.
    """

    def __init__(self, correlation: nn.Module) -> None:
        super().__init__()
        self.correlation = correlation

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """`(B, C, H, W)` twice → `(B, (2R+1)², H, W)`."""
        return F.leaky_relu(self.correlation(reference, query, iters), 0.1)

    def refine(
        self,
        decoder: nn.Module,
        reference: Tensor,
        query: Tensor,
        flow: Tensor,
        cell: int,
        iters: int | None,
        *further: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Match the reference with the query warped by a flow, and add the decoded residual to the flow.

        Args:
            decoder: a `FlowDecoder` of the volume, the flow and the `further` inputs.
            reference: features `(B, C, H, W)`.
            query: features of the same shape.
            flow: `(B, 2, H, W)` in image pixels.
            cell: image pixels per feature.
            iters: see `forward`.
            *further: maps `(B, ·, H, W)`.

        Returns:
            The decoder's features and the refined flow.
        """
        volume = self(reference, warp(query, flow / cell), iters)
        features, residual = decoder(torch.cat([volume, flow, *further], 1))
        return features, residual + flow


def l2_normalize(x: Tensor) -> Tensor:
    """`x / √(Σ_c x² + 1e-6)`, as in the published networks."""
    return x / (x.square().sum(1, keepdim=True) + 1e-6).sqrt()


def mapping_to_pixels(mapping: Tensor) -> Tensor:
    """Normalised mapping in [−1, 1]² → flow in pixels of its own grid, `(B, 2, H, W)` both."""
    height, width = mapping.shape[2:]
    x = torch.arange(width, dtype=mapping.dtype, device=mapping.device)
    y = torch.arange(height, dtype=mapping.dtype, device=mapping.device).unsqueeze(1)
    return torch.stack([(mapping[:, 0] + 1) * ((width - 1) / 2) - x, (mapping[:, 1] + 1) * ((height - 1) / 2) - y], 1)


def decode_global_volume(decoder: nn.Module, volume: Tensor, cell: int) -> Tensor:
    """Global volume → flow `(B, 2, H, W)` in image pixels, with zeros in place of an initial flow.

    Args:
        decoder: volume and flow → normalised mapping.
        volume: `(B, Hq·Wq, H, W)`.
        cell: image pixels per cell of the volume.
    """
    start = volume.new_zeros(volume.shape[0], 2, *volume.shape[2:])
    return mapping_to_pixels(decoder(torch.cat([volume, start], 1))) * cell
