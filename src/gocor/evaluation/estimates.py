"""Flows with their confidence, as `gocor.match` returns them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..matching.api import match_tensors, working_scale, working_size
from ..matching.certainty import certainty, visibility
from ..matching.images import to_batch
from ..models.network import MatchingNetwork
from ..utils.arrays import FlowField, Picture
from .baselines import as_field, match_options


class Estimate(NamedTuple):
    """The flow of a matcher between two images, with its confidence.

    Attributes:
        flow: `(H, W, 2)`, reference pixel + flow = query pixel, x first, in the query's own pixels.
        confidence: `(H, W)` in [0, 1], that the match is right.
        visibility: `(H, W)` in [0, 1], probability that the query shows the pixel; or `None`.
        scale: pixels, in x and in y, of the size that the confidence refers to, per pixel of the query.
        source: where the confidence comes from: `"learnt"`, `"consistency"`, or a name of your own.
    """

    flow: FlowField
    confidence: NDArray[np.float32]
    visibility: NDArray[np.float32] | None = None
    scale: tuple[float, float] = (1.0, 1.0)
    source: str = ""


def network_estimator(
    network: MatchingNetwork, *, flips: bool = False, **options: Any
) -> Callable[[Picture, Picture], Estimate]:
    """A network as a matcher that computes exactly the flow and the confidence of `gocor.match`.

    The visibility is the probability behind the occlusion mask of `gocor.match`; a mask of the forward–backward test
    has none. Arguments are those of `network_matcher`.
    """
    chosen = match_options(options).resolve(network, flips=flips)

    def estimate(reference: Picture, query: Picture) -> Estimate:
        (height, width), (query_height, query_width) = reference.shape[:2], query.shape[:2]
        first, second = (to_batch([picture], network) for picture in (reference, query))
        found = match_tensors(network, first, second, chosen, flips=flips)
        size = working_size(network, height, width, chosen)
        confidence, _ = certainty(found, (query_height, query_width), working_scale(size, height, width))
        visible = visibility(found, (query_height, query_width))
        return Estimate(
            flow=as_field(found.forward),
            confidence=_map(confidence),
            visibility=None if visible is None else _map(visible),
            scale=(size[1] / query_width, size[0] / query_height),
            source=chosen.confidence or "",
        )

    return estimate


def _map(values: Tensor) -> NDArray[np.float32]:
    return np.asarray(values[0, 0].float().cpu().numpy())
