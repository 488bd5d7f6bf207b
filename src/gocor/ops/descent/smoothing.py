"""The linear operator R of the query objective (paper, eq. 6): a 4-D convolution, factorised into two 2-D ones.

R has no bias, zero padding and nothing between its two convolutions, so it is linear and has an exact adjoint. The
first kernel acts on the last two dimensions of a volume (the query's, in a global volume), the second one on the first
two. Published code does it this way; the paper describes the opposite order.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from .. import select
from .operators import smooth_twice


def smooth(volume: Tensor, weight1: Tensor, weight2: Tensor) -> Tensor:
    """R ∗ volume: `(B, U1, U2, V1, V2)` → `(B, V1, V2, Q, U1, U2)`.

    Args:
        volume: the volume.
        weight1: first kernel, `(I, 1, k, k)`, over V.
        weight2: second kernel, `(Q, I, k, k)`, over U.
    """
    batch, *first, v1, v2 = volume.shape
    padding = weight1.shape[2] // 2
    x = F.conv2d(volume.flatten(0, 2).unsqueeze(1), weight1, padding=padding)  # (B·U1·U2, I, V1, V2)
    x = x.view(batch, *first, len(weight1), v1, v2).permute(0, 4, 5, 3, 1, 2)  # (B, V1, V2, I, U1, U2)
    x = F.conv2d(x.flatten(0, 2), weight2, padding=padding)
    return x.view(batch, v1, v2, len(weight2), *first)


def smooth_adjoint(smoothed: Tensor, weight1: Tensor, weight2: Tensor) -> Tensor:
    """Rᵀ: `(B, V1, V2, Q, U1, U2)` → `(B, U1, U2, V1, V2)`; weights as in `smooth`."""
    batch, v1, v2, _, *first = smoothed.shape
    padding = weight1.shape[2] // 2
    x = F.conv_transpose2d(smoothed.flatten(0, 2), weight2, padding=padding)
    x = x.view(batch, v1, v2, len(weight1), *first).permute(0, 4, 5, 3, 1, 2)  # (B, U1, U2, I, V1, V2)
    x = F.conv_transpose2d(x.flatten(0, 2), weight1, padding=padding)
    return x.view(batch, *first, v1, v2)


class QuerySmoothing(NamedTuple):
    """R as an operator on query scores `(B, K, H, W)`.

    Attributes:
        weight1: R's first kernel `(I, 1, k, k)`.
        weight2: R's second kernel `(Q, I, k, k)`.
        fold: query scores → the volume that R acts on, `(B, U1, U2, V1, V2)`.
        unfold: the inverse of `fold`.
    """

    weight1: Tensor
    weight2: Tensor
    fold: Callable[[Tensor], Tensor]
    unfold: Callable[[Tensor], Tensor]

    def __call__(self, scores: Tensor) -> Tensor:
        """R ∗ scores, `(B, V1, V2, Q, U1, U2)`."""
        return smooth(self.fold(scores), self.weight1, self.weight2)

    def adjoint(self, smoothed: Tensor) -> Tensor:
        """Rᵀ of smoothed scores, `(B, K, H, W)`."""
        return self.unfold(smooth_adjoint(smoothed, self.weight1, self.weight2))

    def twice(self, scores: Tensor) -> Tensor:
        """RᵀR ∗ scores `(B, Hq, Wq, Hr, Wr)` of a global volume, query positions first."""
        if select.uses_smoothing_kernels(scores, self.weight1, self.weight2):
            return smooth_twice(scores, *separate_taps(self.weight1, self.weight2))
        smoothed = smooth(scores.permute(0, 3, 4, 1, 2), self.weight1, self.weight2)
        return smooth_adjoint(smoothed, self.weight1, self.weight2).permute(0, 3, 4, 1, 2)


def separate_taps(weight1: Tensor, weight2: Tensor) -> tuple[Tensor, Tensor]:
    """R's two kernels as the Triton kernels take them: `(9, I)` over the query, `(9, Q, I)` over the reference."""
    first = weight1.float().flatten(1).mT.contiguous()
    return first, weight2.float().flatten(2).permute(2, 0, 1).contiguous()
