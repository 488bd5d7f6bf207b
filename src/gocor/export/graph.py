"""The module that is exported: two images of any size in, the flow at the reference's size out."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..models.network import MatchingNetwork
from ..utils.errors import InputError

MAX_SIDE = 8192  # pixels: longest side of images that a graph without a fixed side takes


class MatchingGraph(nn.Module):
    """`MatchingNetwork.predict` without branches that depend on the size of the images.

    Args:
        network: a network in evaluation mode. Its `fixed_side` is set.
        side: longer side, in pixels, to which both images are resized; 0 keeps their own size, which the network
            rounds.
    """

    def __init__(self, network: MatchingNetwork, side: int) -> None:
        super().__init__()
        if network.published:
            raise InputError("published weights cannot be exported: their rules depend on the size of the images")
        if side == 0 and network.min_size:
            raise InputError(f"{network.name} cannot be exported for the images' own size: its levels depend on it")
        network.fixed_side = side or None
        self.network, self.side = network, side
        sides = range(1, (side or MAX_SIDE) + 1)
        rounded = [network.round_size(n, n)[0] for n in sides]
        self.unit = math.gcd(*rounded)
        self.least, self.most = min(rounded) // self.unit, max(rounded) // self.unit
        self.units: Tensor
        table = torch.tensor([0, *rounded]) // self.unit
        self.register_buffer("units", table, persistent=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the results."""
        return ("flow", "confidence", "visibility") if self.network.learns_confidence else ("flow",)

    def forward(self, reference: Tensor, query: Tensor) -> Tensor | tuple[Tensor, ...]:
        """RGB images `(B, 3, H, W)` and `(B, 3, Hq, Wq)` in [0, 255] → flow `(B, 2, H, W)` in the query's pixels.

        Networks that learn them also give the confidence and the visibility, `(B, 1, H, W)` each, see `Prediction`.
        """
        options: dict[str, int | None] = {"iters_local": None, "iters_global": None}
        size = self.working_size(reference)
        confidence = self.network.learns_confidence
        found = self.network._estimate(reference, query, options=options, size=size, confidence=confidence)
        return (found[:, :2], found[:, 2:3], found[:, 3:4]) if confidence else found

    def working_size(self, reference: Tensor) -> tuple[int, int]:
        """The size that `network.working_size` gives with `min_size` and `max_size` equal to `side`."""
        if self.least == self.most:
            return self.most * self.unit, self.most * self.unit
        height, width = (torch.scalar_tensor(reference.shape[i], dtype=torch.int64) for i in (2, 3))
        if self.side:
            longer = torch.maximum(height, width)
            height, width = (_rounded_ratio(n * self.side, longer) for n in (height, width))
        sides = []
        for side in (height, width):
            units: Any = self.units[side.clamp(1, len(self.units) - 1)].item()  # a symbol while a graph is exported
            torch._check(units >= self.least)
            torch._check(units <= self.most)
            sides.append(units * self.unit)
        return sides[0], sides[1]


def _rounded_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The integer next to a ratio of positive integers; a tie goes to the even one, as in Python's `round`."""
    below = numerator // denominator
    twice = 2 * (numerator - below * denominator)
    odd = below % 2 == 1
    return below + ((twice > denominator) | ((twice == denominator) & odd)).to(below.dtype)
