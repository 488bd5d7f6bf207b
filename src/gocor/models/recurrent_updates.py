"""The loop of a recurrent network: look up scores, update the state, move the flow."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..ops.warp import pixel_grid

SETTLED = 0.05  # mean motion in one update, see `Motion`, at or below which a flow has settled
ASK_EVERY = 2  # updates between two checks of the motion, each of which waits for the device

Update = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""State, scores and flow → the next state, and the change of the flow."""

LookUp = Callable[[Tensor], Tensor]
"""Positions `(B, 2, h, w)` → scores around them."""

Motion = Callable[[Tensor, Tensor], Tensor]
"""State and change of the flow → mean motion of each sample in pixels of the working size, `(B, 1, 1, 1)`."""


def iterate(
    update: Update,
    look_up: LookUp,
    hidden: Tensor,
    flow: Tensor,
    count: int,
    motion: Motion | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """States and flows after each update.

    Args:
        update: see `Update`.
        look_up: see `LookUp`.
        hidden: state to start from, `(B, hidden, h, w)`.
        flow: flow to start from, `(B, 2, h, w)` in its own pixels.
        count: number of updates.
        motion: see `Motion`. If given, a sample is no longer updated once its flow has settled, and updates end when
            all samples have settled. A sample's flow does not depend on the others in its batch.
    """
    grid = pixel_grid(flow.shape[2], flow.shape[3], device=flow.device)
    found: list[tuple[Tensor, Tensor]] = []
    moving: Tensor | None = None  # samples that have not settled; `None` before the first check
    for index in range(1, count + 1):
        flow = flow.detach()
        state, change = update(hidden, look_up(grid + flow), flow)
        if moving is not None:
            state, change = torch.where(moving, state, hidden), change * moving
        hidden, flow = state, flow + change
        found.append((hidden, flow))
        if motion is not None and index % ASK_EVERY == 0:
            moving = motion(hidden, change) > SETTLED
            if not moving.any():
                break
    return found


def mean_motion(change: Tensor, confidence: Tensor) -> Tensor:
    """Mean length of a change of the flow `(B, 2, h, w)`, weighted by a confidence `(B, 1, h, w)`: `(B, 1, 1, 1)`."""
    length = torch.linalg.vector_norm(change, dim=1, keepdim=True)
    return (confidence * length).mean((1, 2, 3), keepdim=True) / confidence.mean((1, 2, 3), keepdim=True)
