"""Confidence and occlusion of a flow, from the flow in the opposite direction."""

from torch import Tensor

from ..ops.warp import forward_backward_error, occlusion_mask


def certainty(forward: Tensor, backward: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Confidence and occlusion mask of a flow.

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
