"""Confidence and occlusion of a flow: learnt by the network, or from the flow in the opposite direction."""

from typing import NamedTuple

from torch import Tensor

from ..ops.warp import forward_backward_error, inside_mask, occlusion_mask


class Matched(NamedTuple):
    """Flows between two batches of images, and what the network predicts of them.

    Attributes:
        forward: flow reference → query, `(B, 2, H, W)`.
        backward: flow query → reference, `(B, 2, Hq, Wq)`; or `None`.
        confidence: predicted probability that the forward flow is right, `(B, 1, H, W)`; or `None`.
        visibility: predicted probability that the query shows the pixel, likewise.
    """

    forward: Tensor
    backward: Tensor | None = None
    confidence: Tensor | None = None
    visibility: Tensor | None = None


def certainty(found: Matched, query_size: tuple[int, int], scale: float) -> tuple[Tensor, Tensor]:
    """Confidence and occlusion mask of a flow, both `(B, 1, H, W)`: predicted if there are any, else `consistency`.

    Args:
        found: must have a predicted confidence or the backward flow.
        query_size: `(Hq, Wq)`.
        scale: see `consistency`.
    """
    visible = visibility(found, query_size)
    if found.confidence is not None and visible is not None:
        return found.confidence * inside_mask(found.forward, query_size), visible < 0.5
    assert found.backward is not None
    return consistency(found.forward, found.backward, scale)


def visibility(found: Matched, query_size: tuple[int, int]) -> Tensor | None:
    """Predicted probability that the query shows the pixel, `(B, 1, H, W)`, 0 where the match is outside the query.

    `None` if the network does not predict it.
    """
    return None if found.visibility is None else found.visibility * inside_mask(found.forward, query_size)


def consistency(forward: Tensor, backward: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Confidence and occlusion mask of a flow by the forward–backward error.

    Args:
        forward: flow reference → query, `(B, 2, H, W)`.
        backward: flow query → reference, `(B, 2, Hq, Wq)`.
        scale: pixels of the network's working size per pixel of the reference. Both results are in working pixels, so
            that they do not depend on the resolution of the images.

    Returns:
        Confidence `1 / (1 + e)` with e the forward–backward error, and the occlusion mask; both `(B, 1, H, W)`.
    """
    error = scale * forward_backward_error(forward, backward).float()
    return 1 / (1 + error), occlusion_mask(forward, backward, absolute=0.5 / scale**2)
