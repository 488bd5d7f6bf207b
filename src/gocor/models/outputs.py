"""What networks return."""

from typing import NamedTuple

import torch
from torch import Tensor

RIGHT_WITHIN = 2.0  # largest error of a match that counts as right, in pixels of the working size


class Outputs(NamedTuple):
    """Results of a network in training.

    Attributes:
        flows: flows of the levels, coarse to fine, see `MatchingNetwork.levels`.
        confidence: logits of the probabilities that the last flow is right (at most 2 pixels off) and that the query
            shows the pixel, at the flow's size, `(B, 2, h, w)`; or `None`.
    """

    flows: list[Tensor]
    confidence: Tensor | None


class Prediction(NamedTuple):
    """What a network finds between two images.

    Attributes:
        flow: `(B, 2, H, W)`: reference pixel + flow = query pixel, in the query's own pixels.
        confidence: probability that the flow is at most 2 pixels of the working size off, `(B, 1, H, W)`; `None` if
            the network does not learn it.
        visibility: probability that the query shows the pixel, likewise.
    """

    flow: Tensor
    confidence: Tensor | None
    visibility: Tensor | None

    @classmethod
    def of_maps(cls, maps: Tensor) -> "Prediction":
        """The prediction whose `maps` these are."""
        flow, rest = maps[:, :2], maps[:, 2:]
        return cls(flow, *(rest.split(1, 1) if rest.shape[1] else (None, None)))

    @property
    def maps(self) -> Tensor:
        """Flow and, if there are any, confidence and visibility as one tensor, `(B, 2, H, W)` or `(B, 4, H, W)`."""
        return torch.cat([maps for maps in self if maps is not None], 1)


class ImageFeatures(NamedTuple):
    """What a network computes from an image alone, so that an image of several pairs is processed once.

    Attributes:
        tensors: features in the network's own format.
        image_size: height and width of the image.
        working_size: height and width to which it was resized.
    """

    tensors: tuple[Tensor, ...]
    image_size: tuple[int, int]
    working_size: tuple[int, int]
