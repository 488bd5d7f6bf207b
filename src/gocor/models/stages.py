"""The correlation layers of a network with the features that they compare, for views of their scores."""

from typing import NamedTuple

from torch import Tensor, nn


class Stage(NamedTuple):
    """One correlation layer of a network and its inputs for a pair of images.

    Attributes:
        name: name of the layer to show, `"global"` or `"local"`.
        layer: a GOCor module; any other layer, or `None`, stands for plain correlation.
        reference: features `(B, C, H, W)` of the reference, as the layer takes them.
        query: features `(B, C, H, W)` of the whole query, not warped.
    """

    name: str
    layer: nn.Module | None
    reference: Tensor
    query: Tensor
