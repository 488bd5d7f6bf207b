"""The frames of the output."""

import numpy as np
from torch import Tensor

from ..utils.arrays import Picture
from ..viz.drawing import add_flow_legend, draw_flow
from .tracks import Trails

FLOW_SHARE = 0.6  # share of the flow's colours in an overlay on a grey frame


def draw(view: str, picture: Picture, flow: Tensor, max_flow: float | None, trails: Trails | None) -> Picture:
    """Draw one frame.

    Args:
        view: see `VideoOptions.view`; without stabilisation.
        picture: the frame.
        flow: flow to the next frame, `(2, H, W)`.
        max_flow: scale of the colours; needed unless the view is `"frame"`.
        trails: trails of the tracks; or `None`.
    """

    def with_trails(base: Picture) -> Picture:
        return base if trails is None else trails.draw(base)

    if view == "frame":
        return with_trails(picture)
    assert max_flow is not None
    drawn = draw_flow(flow, max_flow=max_flow, max_side=max(picture.shape[:2]), legend=False)
    if view == "overlay":
        grey = picture.astype(np.float32).mean(2, keepdims=True)
        drawn = np.rint(FLOW_SHARE * drawn + (1 - FLOW_SHARE) * grey).astype(np.uint8)
    if view != "side":
        drawn = with_trails(drawn)
    add_flow_legend(drawn, max_flow)  # last, so that neither the frame nor a trail shows through
    return np.concatenate([with_trails(picture), drawn], 1) if view == "side" else drawn
