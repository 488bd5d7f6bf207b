"""Lookups by matrix products of tiles of filters with windows of the query: the plain form of `lookup`.

Where the flow is smooth, neighbouring filters have neighbouring positions. A tile of 4×4 filters then shares one window
of the query, and one matrix product gives its scores. Where the positions of a tile are too far apart for one window,
each filter has a window of its own.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import accumulation_dtype

TILE = 4  # side of a tile of filters
SLACK = 6  # pixels by which the positions of a tile may be farther apart than its pixels
BUDGET = {"cpu": 2**20, "accelerator": 2**26}  # features held at a time: they fit a CPU's cache, or fill a GPU


class ScoreWindows:
    """Scores of filters around positions that move a little from call to call, in one query level.

    A window is larger than its tile needs. The scores of a tile are computed again only when its positions have left
    the window of the call before.

    Args:
        filters: `(B, C, H, W)`.
        query: `(B, C, Hq, Wq)`.
        radius: R.
    """

    def __init__(self, filters: Tensor, query: Tensor, radius: int) -> None:
        self.radius, self.height, self.width = radius, filters.shape[2], filters.shape[3]
        self.size, self.dtype = (query.shape[2], query.shape[3]), query.dtype
        self.reach = 2 * radius + 2  # integer positions around a filter's, in each direction
        self.side = self.reach + TILE + SLACK  # of a window
        wide = accumulation_dtype(filters, query)
        tiled = _tiles(filters.to(wide))  # (B, h, w, T², C)
        self.tiles = tiled.shape[:3]
        self.weights = tiled.flatten(0, 2)  # (n, T², C)
        self.keys = query.to(wide).flatten(2).mT.reshape(-1, filters.shape[1]).contiguous()  # rows are gathered
        images = torch.arange(len(filters), device=query.device)
        # Rows of `keys` that belong to the samples before the tile's own, (n,).
        self.rows_before = images.repeat_interleave(self.tiles[1] * self.tiles[2]) * (self.size[0] * self.size[1])
        self.scores = self.weights.new_zeros(len(self.weights), TILE * TILE, self.side**2)
        self.first = self.rows_before.new_zeros(len(self.weights), 2)  # upper left pixel of each window
        self.known = torch.zeros_like(self.rows_before, dtype=torch.bool)  # windows whose scores were computed

    def __call__(self, coordinates: Tensor) -> Tensor:
        """Positions `(B, 2, H, W)`, x then y → scores `(B, (2R+1)², H, W)` in the query's dtype, channels last."""
        at = _tiles(torch.stack(bounded(coordinates, self.size, self.radius), 1)).flatten(0, 2)  # (n, T², 2)
        corner = at.floor().long() - self.radius  # first of the integer positions around each filter's
        first, last = corner.amin(1), corner.amax(1) + self.reach
        shared = (last - first <= self.side).all(1)
        kept = self.known & ((first >= self.first) & (last <= self.first + self.side)).all(1)
        self._compute(shared & ~kept, first, last)
        out = self.keys.new_empty(len(at), TILE * TILE, (2 * self.radius + 1) ** 2, dtype=self.dtype)
        self._read(out, corner, at - at.floor())
        self._look_up_apart(~shared, out, corner, at - at.floor())
        out = out.view(*self.tiles, TILE, TILE, -1).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return out[:, : self.height, : self.width].contiguous().permute(0, 3, 1, 2)

    def _compute(self, chosen: Tensor, first: Tensor, last: Tensor) -> None:
        """Compute the scores of some tiles, with their positions `(n, 2)` in the middle of the windows."""
        middle = first - (self.side - (last - first)) // 2
        self.first = torch.where(chosen.unsqueeze(1), middle, self.first)
        self.known = self.known | chosen
        for part in self._chunks(chosen, self.side**2 * self.keys.shape[1]):
            window = _window(self.keys, middle[part], self.rows_before[part], self.size, self.side)  # (n, S², C)
            self.scores[part] = torch.bmm(self.weights[part], window.mT)

    def _read(self, out: Tensor, corner: Tensor, fraction: Tensor) -> None:
        """Write the scores of all tiles, read from their windows. Tiles without a window get undefined values."""
        offset = (corner - self.first.unsqueeze(1)).clamp(0, self.side - self.reach)
        axis = torch.arange(self.reach, device=corner.device)
        square = (axis.unsqueeze(1) * self.side + axis).flatten()
        for part in _slices(len(out), self._budget() // (TILE**2 * self.reach**2)):
            x, y = offset[part].unbind(2)
            places = (y * self.side + x).unsqueeze(2) + square  # (n, T², (2R+2)²)
            out[part] = interpolate(self.scores[part].gather(2, places), fraction[part], self.radius)

    def _look_up_apart(self, chosen: Tensor, out: Tensor, corner: Tensor, fraction: Tensor) -> None:
        """Write the scores of tiles whose positions are too far apart for one window: each filter has its own."""
        for part in self._chunks(chosen, TILE**2 * self.reach**2 * self.keys.shape[1]):
            before = self.rows_before[part].repeat_interleave(TILE * TILE)
            windows = _window(self.keys, corner[part].flatten(0, 1), before, self.size, self.reach)
            scores = torch.bmm(windows, self.weights[part].flatten(0, 1).unsqueeze(2))  # (n·T², (2R+2)², 1)
            out[part] = interpolate(scores.view(*corner[part].shape[:2], -1), fraction[part], self.radius).to(out.dtype)

    def _budget(self) -> int:
        return BUDGET["cpu" if self.keys.device.type == "cpu" else "accelerator"]

    def _chunks(self, chosen: Tensor, values: int) -> tuple[Tensor, ...]:
        """Indices of the chosen tiles, in chunks that keep to the budget if a tile needs this many values."""
        indices = chosen.nonzero().flatten()
        return indices.split(max(1, self._budget() // values)) if len(indices) else ()


def bounded(coordinates: Tensor, size: tuple[int, int], radius: int) -> tuple[Tensor, Tensor]:
    """Positions `(B, 2, …)` as x and y. Those far away or not finite are moved to just outside the query."""
    far = 2.0 * radius + 4  # scores are zero there
    x, y = (torch.where(values.isfinite(), values, -far) for values in coordinates.unbind(1))
    return x.clamp(-far, size[1] + far), y.clamp(-far, size[0] + far)


def interpolate(scores: Tensor, fraction: Tensor, radius: int) -> Tensor:
    """Scores at integer positions `(B, n, (2R+2)²)` → at the displacements `(B, n, (2R+1)²)`.

    Args:
        scores: scores at the integer positions around each filter's own.
        fraction: fractional part of the filter's position, `(B, n, 2)`.
        radius: R.
    """
    fx, fy = (values[..., None, None] for values in fraction.unbind(2))
    grid = scores.unflatten(2, (2 * radius + 2, 2 * radius + 2))
    across = grid[..., :-1] + fx * (grid[..., 1:] - grid[..., :-1])
    return (across[..., :-1, :] + fy * (across[..., 1:, :] - across[..., :-1, :])).flatten(2)


def _tiles(x: Tensor) -> Tensor:
    """`(B, C, H, W)` → `(B, h, w, T², C)`; the last row and column are repeated up to a multiple of the tile."""
    x = F.pad(x, (0, -x.shape[3] % TILE, 0, -x.shape[2] % TILE), mode="replicate")
    return x.unflatten(3, (-1, TILE)).unflatten(2, (-1, TILE)).permute(0, 2, 4, 3, 5, 1).flatten(3, 4)


def _slices(length: int, step: int) -> list[slice]:
    step = max(1, step)
    return [slice(start, start + step) for start in range(0, length, step)]


def _window(keys: Tensor, first: Tensor, rows_before: Tensor, size: tuple[int, int], side: int) -> Tensor:
    """Features `(n, side², C)` of squares of the query, whose upper left pixels are `first` `(n, 2)`; zero outside."""
    axis = torch.arange(side, device=keys.device)
    columns, rows = first[:, :1] + axis, first[:, 1:] + axis  # (n, side)
    inside = ((rows >= 0) & (rows < size[0])).unsqueeze(2) & ((columns >= 0) & (columns < size[1])).unsqueeze(1)
    lines = rows.clamp(0, size[0] - 1) * size[1] + rows_before.unsqueeze(1)
    index = lines.unsqueeze(2) + columns.clamp(0, size[1] - 1).unsqueeze(1)
    window = keys.index_select(0, index.flatten()).view(len(first), side * side, keys.shape[1])
    return window if bool(inside.all()) else window.mul_(inside.view(len(first), -1, 1))
