"""Matching scores of a reference pixel over the whole query: plain correlation, and GOCor after each iteration.

The scores come from the features and layers of the network that matched the pair, before any alignment.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.network import MatchingNetwork
from ..models.stages import Stage
from ..modules import GlobalGOCor, LocalGOCor
from ..ops.sampling import is_inside
from ..utils.arrays import Array
from .api import working_size
from .images import to_batch
from .options import MatchOptions
from .result import MatchResult

HIT_RADIUS = 1.5  # cells: largest distance from the match at which the highest score counts as at the match
PEAK_RADIUS = 2.5  # cells: scores farther from the match are elsewhere
MIN_CONFIDENCE = 0.5  # lowest confidence of the pixels over which a layer is measured
MAX_MEASURED = 600  # largest number of these pixels
MARGIN = 0.12  # share of the sides: pixels nearer to the border are shown first only if there are no others


@dataclass(frozen=True)
class Peak:
    """The highest score of a score map within reach of its layer, compared with the match that the flow gives.

    Attributes:
        position: position of the highest score, `(x, y)` in pixels of the query.
        distance: distance from there to the match, in pixels of the query.
        hit: whether it is at the match, see `HIT_RADIUS`.
        ratio: highest score elsewhere, divided by the highest score at the match; infinite if that is not positive.
    """

    position: tuple[float, float]
    distance: float
    hit: bool
    ratio: float


@dataclass(frozen=True)
class LayerScores:
    """One correlation layer of a network, ready to score any reference pixel.

    Attributes:
        name: name of the layer.
        titles: titles of the filters.
        filters: filters `(C, H, W)`: the plain features, then GOCor's filters after each iteration.
        query: features `(C, Hq, Wq)`.
        reference_size: height and width of the reference in pixels.
        query_size: likewise.
        reach: how far from the match a local layer searches, in cells of the query; `None` for the whole query.
    """

    name: str
    titles: tuple[str, ...]
    filters: tuple[Tensor, ...]
    query: Tensor
    reference_size: tuple[int, int]
    query_size: tuple[int, int]
    reach: int | None = None

    def at(self, x: float, y: float) -> list[Array]:
        """Scores `(Hq, Wq)` of the reference pixel `(x, y)`, one map for each of `titles`."""
        height, width = self.filters[0].shape[1:]
        column = min(width - 1, max(0, int((x + 0.5) * width / self.reference_size[1])))
        row = min(height - 1, max(0, int((y + 0.5) * height / self.reference_size[0])))
        return [torch.einsum("c,chw->hw", f[:, row, column], self.query).double().numpy() for f in self.filters]

    def peak(self, scores: Array, match: tuple[float, float]) -> Peak:
        """The highest of some scores `(Hq, Wq)` within reach of a match `(x, y)`, compared with that match.

        The match is in pixels of the query. If it is so far outside that nothing is within reach, all scores count.
        """
        cell = self.query_cell
        across, down = self._offsets(np.array([match]))
        cells, within = np.hypot(across, down)[0], self._within_reach(across, down)[0]
        scores = np.where(within, scores, -np.inf) if within.any() else scores
        y, x = np.unravel_index(int(scores.argmax()), scores.shape)
        position = (float(x) + 0.5) * cell[0] - 0.5, (float(y) + 0.5) * cell[1] - 0.5
        near = cells <= max(PEAK_RADIUS, cells.min())
        here = scores[near].max()
        elsewhere = scores[~near].max() if (~near).any() else -np.inf
        return Peak(
            position=position,
            distance=float(np.hypot(position[0] - match[0], position[1] - match[1])),
            hit=bool(cells[y, x] <= HIT_RADIUS),
            ratio=max(0.0, float(elsewhere / here)) if here > 0 else float("inf"),
        )

    def measure(self, result: MatchResult) -> "Measured":
        """How often the highest score within reach is at the match, over confident pixels of a result."""
        points = confident_cells(result, (self.filters[0].shape[1], self.filters[0].shape[2]))
        if not len(points):
            return Measured(0, tuple(0.0 for _ in self.filters), None)
        rows, columns = points[:, 5].astype(int), points[:, 4].astype(int)
        across, down = self._offsets(points[:, 2:4])
        distances, within = np.hypot(across, down), self._within_reach(across, down)  # (N, Hq, Wq)
        near = distances <= PEAK_RADIUS
        hits, ratio = [], np.ones(len(points))
        for filters in self.filters:
            scores = torch.einsum("cn,chw->nhw", filters[:, rows, columns], self.query).double().numpy()
            scores = np.where(within, scores, -np.inf)
            best = scores.reshape(len(points), -1).argmax(1)
            hits.append(np.take_along_axis(distances.reshape(len(points), -1), best[:, None], 1)[:, 0] <= HIT_RADIUS)
            here, elsewhere = (np.where(mask, scores, -np.inf).max((1, 2)) for mask in (near, ~near))
            ratio = np.divide(elsewhere, here, out=np.full(len(points), np.inf), where=here > 0)
        size = np.array([*self.reference_size[::-1], *self.query_size[::-1]])
        inner = ((points[:, :4] > MARGIN * size) & (points[:, :4] < (1 - MARGIN) * size)).all(1)
        gained = hits[-1] & ~hits[0]
        # From weak to strict; the strictest that any pixel meets is taken.
        choices = [hits[-1] | True, hits[-1], hits[-1] & inner, gained, gained & inner]
        chosen = next(mask for mask in reversed(choices) if mask.any())
        x, y = points[int(np.where(chosen, ratio, np.inf).argmin()), :2]
        return Measured(len(points), tuple(float(hit.mean()) for hit in hits), (float(x), float(y)))

    @property
    def query_cell(self) -> tuple[float, float]:
        """Width and height of a query cell in pixels."""
        return self.query_size[1] / self.query.shape[2], self.query_size[0] / self.query.shape[1]

    def _offsets(self, matches: Array) -> tuple[Array, Array]:
        """Offsets in cells from matches `(N, 2)` in pixels to cells of the query: x `(N, 1, Wq)`, y `(N, Hq, 1)`."""
        width, height = self.query_cell
        x, y = (matches[:, 0] + 0.5) / width - 0.5, (matches[:, 1] + 0.5) / height - 0.5
        columns, rows = np.arange(self.query.shape[2]), np.arange(self.query.shape[1])
        return columns - x[:, None, None], rows[:, None] - y[:, None, None]

    def _within_reach(self, across: Array, down: Array) -> NDArray[np.bool_]:
        """Which cells are within the layer's reach of the match, `(N, Hq, Wq)`."""
        reach = np.inf if self.reach is None else self.reach + 0.5  # whole cells
        return (np.abs(across) <= reach) & (np.abs(down) <= reach)


@dataclass(frozen=True)
class Measured:
    """Statistics of a layer over many pixels of one pair.

    Attributes:
        pixels: how many were measured.
        hits: share of them whose highest score within reach is at the match that the flow gives, for each of
            `LayerScores.titles`.
        telling: a pixel `(x, y)` for which plain correlation fails and GOCor does not, if there is one.
    """

    pixels: int
    hits: tuple[float, ...]
    telling: tuple[float, float] | None


@torch.inference_mode()
def layer_scores(network: MatchingNetwork, result: MatchResult, options: MatchOptions) -> list[LayerScores]:
    """The correlation layers of the network that made a result; empty if the network does not show them.

    Args:
        network: the network that matched the pair.
        result: its result.
        options: the options of the match.
    """
    size, query_size = ((picture.shape[0], picture.shape[1]) for picture in (result.reference, result.query))
    images = to_batch([result.reference], network), to_batch([result.query], network)
    found = []
    for stage in network.stages(*network.prepare(*images, working_size(network, *size, options))):
        iters = options.iters_global if stage.name == "global" else options.iters_local
        titles, filters = _filters(stage, iters)
        reach = getattr(stage.layer, "radius", None)
        found.append(LayerScores(stage.name, titles, filters, stage.query[0].float().cpu(), size, query_size, reach))
    return found


def confident_cells(result: MatchResult, cells: tuple[int, int]) -> NDArray[np.float64]:
    """Confident pixels of a result at the centres of feature cells: rows x, y, x′, y′, column, row.

    Args:
        result: result of a pair.
        cells: height and width of the feature map.
    """
    height, width = result.confidence.shape
    rows, columns = np.mgrid[: cells[0], : cells[1]]
    y = np.minimum(height - 1, ((rows + 0.5) * height / cells[0]).astype(int))
    x = np.minimum(width - 1, ((columns + 0.5) * width / cells[1]).astype(int))
    flow = result.flow.numpy()[:, y, x]
    table = np.stack([x, y, x + flow[0], y + flow[1], columns, rows], -1).reshape(-1, 6).astype(np.float64)
    chosen = table[
        is_inside(table[:, 2:4], result.query.shape) & (result.confidence.numpy()[y, x].ravel() >= MIN_CONFIDENCE)
    ]
    return chosen[:: max(1, -(-len(chosen) // MAX_MEASURED))]


def _filters(stage: Stage, iters: int | None) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
    """Titles and filters `(C, H, W)` of a layer: plain correlation first."""
    layer, reference = stage.layer, stage.reference
    titles, filters = ["Plain correlation"], [reference]
    if isinstance(layer, GlobalGOCor) or (isinstance(layer, LocalGOCor) and layer.query_objective is None):
        count = layer.iters if iters is None else iters
        for done in range(min(1, count), count + 1):
            if isinstance(layer, GlobalGOCor):
                filters.append(layer.filters(reference, stage.query, done))
            else:
                filters.append(layer.filters(reference, done))
            titles.append(f"GOCor, {done} iteration{'s' * (done != 1)}")
    return tuple(titles), tuple(f[0].float().cpu() for f in filters)
