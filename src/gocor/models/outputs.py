"""What networks return."""

from typing import NamedTuple

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
