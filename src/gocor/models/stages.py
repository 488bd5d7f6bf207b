"""What the correlation layers of a network compare, for those who want to look inside."""

from typing import NamedTuple

from torch import Tensor, nn


class Stage(NamedTuple):
    """One correlation layer of a network and its inputs for a pair of images.

    Attributes:
        name: of the layer, for people.
        layer: a GOCor module; any other layer, or `None`, stands for plain correlation.
        reference: features `(B, C, H, W)` of the reference, as the layer takes them.
        query: features `(B, C, H, W)` of the whole query, not warped.
    """

    name: str
    layer: nn.Module | None
    reference: Tensor
    query: Tensor
