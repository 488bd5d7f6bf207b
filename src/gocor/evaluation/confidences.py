"""The scores of one reference pixel in the query and in the reference itself, iteration by iteration."""

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
    """Scores of one reference pixel in the query, and in the reference itself (paper, fig. 4).

    Attributes:
        titles: titles of the maps: plain correlation, then GOCor after each iteration.
        maps: scores in the query, `(h, w)`.
        extent: left, right, bottom, top of the maps in pixels of the query.
        own_maps: scores in the reference, likewise.
        own_extent: left, right, bottom, top of these maps in pixels of the reference.
    """

    titles: list[str]
    maps: list[NDArray[np.float32]]
    extent: tuple[float, float, float, float]
    own_maps: list[NDArray[np.float32]]
    own_extent: tuple[float, float, float, float]


@torch.no_grad()
def confidences(network: MatchingNetwork, pair: Pair, pixel: tuple[float, float]) -> Confidences | None:
    """Scores of a pixel in the first GOCor module that the network calls, by iteration; `None` if there is none.

    Plain correlation is computed on the same features. The maps of a local module cover its search window.
    """
    calls: list[tuple[GOCor, Tensor, Tensor]] = []

    def record(module: Any, inputs: tuple[Any, ...]) -> None:
        if not calls:
            calls.append((module, inputs[0].detach().clone(), inputs[1].detach().clone()))

    handles = [m.register_forward_pre_hook(record) for m in network.modules() if isinstance(m, GOCor)]
    if not handles:
        return None
    try:
        network_matcher(network)(pair.reference, pair.query)
    finally:
        for handle in handles:
            handle.remove()
    if not calls:
        return None
    layer, reference, query = calls[0]
    window = 2 * layer.radius + 1 if isinstance(layer, LocalGOCor) else None
    plain = LocalFeatureCorrelation(window // 2) if window else GlobalFeatureCorrelation()
    explained = layer.explain(reference, query)
    volumes = [plain(reference, query), *explained.query_volumes]
    own_volumes = [plain(reference, reference), *explained.reference_volumes]
    (rows, columns), (height, width) = reference.shape[2:], pair.reference.shape[:2]
    x = min(columns - 1, int((pixel[0] + 0.5) * columns / width))
    y = min(rows - 1, int((pixel[1] + 0.5) * rows / height))

    def maps(found: list[Tensor], size: torch.Size) -> list[NDArray[np.float32]]:
        shape = (window, window) if window else (size[2], size[3])
        return [volume[0, :, y, x].float().cpu().numpy().reshape(shape) for volume in found]

    def extent(height: int, width: int) -> tuple[float, float, float, float]:
        if not window:
            return -0.5, width - 0.5, height - 0.5, -0.5
        # The window is centred at the pixel's own position.
        left, right = ((x + 0.5 + side * window / 2) * width / columns - 0.5 for side in (-1, 1))
        top, bottom = ((y + 0.5 + side * window / 2) * height / rows - 0.5 for side in (-1, 1))
        return left, right, bottom, top

    steps = range(len(volumes) - 1)
    return Confidences(
        titles=["plain correlation", *(f"GOCor, {n} iteration{'s' * (n != 1)}" for n in steps)],
        maps=maps(volumes, query.shape),
        extent=extent(*pair.query.shape[:2]),
        own_maps=maps(own_volumes, reference.shape),
        own_extent=extent(height, width),
    )
