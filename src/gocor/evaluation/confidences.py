"""The matching confidence of one pixel: its scores in the query, iteration by iteration."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.datasets import Pair
from ..models.network import MatchingNetwork
from ..modules.correlation import GlobalFeatureCorrelation, LocalFeatureCorrelation
from ..modules.gocor import GOCor
from ..modules.local_gocor import LocalGOCor
from .baselines import network_matcher


@dataclass(frozen=True)
class Confidences:
    """Scores of one reference pixel in the query.

    Attributes:
        titles: what each map shows: plain correlation, then GOCor after each iteration.
        maps: `(h, w)` each.
        extent: left, right, bottom, top of the maps in pixels of the query.
    """

    titles: list[str]
    maps: list[NDArray[np.float32]]
    extent: tuple[float, float, float, float]


@torch.no_grad()
def confidences(network: MatchingNetwork, pair: Pair, pixel: tuple[float, float]) -> Confidences | None:
    """Scores of a pixel in the network's first GOCor module, iteration by iteration; `None` where it has none.

    Plain correlation is computed on the same features. Of a local module, the maps cover its window.
    """
    layer = next((module for module in network.modules() if isinstance(module, GOCor)), None)
    if layer is None:
        return None
    caught: list[tuple[Tensor, Tensor]] = []

    def catch(module: Any, inputs: tuple[Any, ...]) -> None:
        if not caught:
            caught.append((inputs[0].detach(), inputs[1].detach()))

    handle = layer.register_forward_pre_hook(catch)
    try:
        network_matcher(network)(pair.reference, pair.query)
    finally:
        handle.remove()
    reference, query = (features.clone() for features in caught[0])
    local = isinstance(layer, LocalGOCor)
    plain = LocalFeatureCorrelation(layer.radius) if isinstance(layer, LocalGOCor) else GlobalFeatureCorrelation()
    volumes = [plain(reference, query), *layer.explain(reference, query).query_volumes]
    (rows, columns), (height, width) = reference.shape[2:], pair.reference.shape[:2]
    x = min(columns - 1, int((pixel[0] + 0.5) * columns / width))
    y = min(rows - 1, int((pixel[1] + 0.5) * rows / height))
    side = 2 * layer.radius + 1 if isinstance(layer, LocalGOCor) else 0
    shape = (side, side) if local else (query.shape[2], query.shape[3])
    maps = [volume[0, :, y, x].float().cpu().numpy().reshape(shape) for volume in volumes]
    titles = ["plain correlation", *(f"GOCor, {n} iteration{'s' * (n != 1)}" for n in range(len(maps) - 1))]
    return Confidences(titles, maps, _extent(shape, (x, y), (rows, columns), pair.query.shape, local=local))


def _extent(
    shape: tuple[int, int],
    at: tuple[int, int],
    grid: tuple[int, int],
    query: tuple[int, ...],
    *,
    local: bool,
) -> tuple[float, float, float, float]:
    """Where maps lie in the query: all over it, or a window around the cell that has the pixel's place."""
    across, down = query[1] / grid[1], query[0] / grid[0]
    if not local:
        return -0.5, query[1] - 0.5, query[0] - 0.5, -0.5
    radius_x, radius_y = shape[1] / 2, shape[0] / 2
    centre_x, centre_y = (at[0] + 0.5) * across - 0.5, (at[1] + 0.5) * down - 0.5
    return (
        centre_x - radius_x * across,
        centre_x + radius_x * across,
        centre_y + radius_y * down,
        centre_y - radius_y * down,
    )
