"""Filtering of a global volume: mutual matching and neighbourhood consensus (NC-Net)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mutual_matching(volume: Tensor) -> Tensor:
    """Weight each score by its ratios to the highest score of its row and of its column: `c · c/max_q c · c/max_r c`.

    Args:
        volume: `(B, Hq·Wq, Hr, Wr)`.

    Returns:
        The same shape.
    """
    over_query = volume.amax(1, keepdim=True) + 1e-5
    over_reference = volume.amax((2, 3), keepdim=True) + 1e-5
    return volume * (volume / over_query) * (volume / over_reference)


class Conv4d(nn.Module):
    """4-D convolution, 3×3×3×3 with zero padding and bias, as a sum of 3-D convolutions over the first dimension."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        shape = (outputs, inputs, 3, 3, 3, 3)
        bound = (inputs * 3**4) ** -0.5
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, inputs, U1, U2, V1, V2)` → `(B, outputs, U1, U2, V1, V2)`."""
        batch, _, first, *rest = x.shape
        padded = F.pad(x, (0, 0, 0, 0, 0, 0, 1, 1)).transpose(1, 2)  # (B, U1 + 2, in, U2, V1, V2)
        out = x.new_zeros(())
        for offset in range(3):
            slices = padded[:, offset : offset + first].flatten(0, 1)  # (B·U1, in, U2, V1, V2)
            out = out + F.conv3d(slices, self.weight[:, :, offset], padding=1)
        out = out.view(batch, first, len(self.bias), *rest).transpose(1, 2)
        return out + self.bias.view(-1, 1, 1, 1, 1)


class NeighbourhoodConsensus(nn.Module):
    """Mutual matching, three 4-D convolutions applied in both directions, mutual matching (NC-Net)."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(Conv4d(before, after) for before, after in pairwise((1, 10, 10, 1)))

    def forward(self, volume: Tensor, query_size: tuple[int, int]) -> Tensor:
        """`(B, Hq·Wq, Hr, Wr)` → the same shape."""
        x = mutual_matching(volume).unflatten(1, query_size).unsqueeze(1)  # (B, 1, Hq, Wq, Hr, Wr)
        exchanged = x.permute(0, 1, 4, 5, 2, 3)
        x = self._filter(x) + self._filter(exchanged).permute(0, 1, 4, 5, 2, 3)
        return mutual_matching(x.squeeze(1).flatten(1, 2))

    def _filter(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x).relu()
        return x
