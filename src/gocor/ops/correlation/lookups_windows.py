"""Lookups by matrix products of tiles of filters with windows of the query: the plain form of `lookup`.

Neighbouring filters look at neighbouring positions where the flow is smooth. So a tile of 4×4 filters shares one window
of the query, and one matrix product gives their scores. A tile whose positions are too far apart reads the positions of
each filter by itself.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import accumulation_dtype

TILE = 4  # side of a tile of filters
SLACK = 6  # pixels by which the positions of a tile may be farther apart than its pixels
BUDGET = {"cpu": 2**20, "accelerator": 2**26}  # features that are held at a time: what fits a CPU's cache, a GPU


def lookup_in_windows(filters: Tensor, query: Tensor, coordinates: Tensor, radius: int) -> Tensor:
    """Scores around given positions of one query level, see `lookup`.

    Args:
        filters: `(B, C, H, W)`.
        query: `(B, C, Hq, Wq)`.
        coordinates: `(B, 2, H, W)` in pixels of the query, x then y.
        radius: R.

    Returns:
        `(B, (2R+1)², H, W)` in the query's dtype, channels last.
    """
    batch, channels, height, width = filters.shape
    wide, size = accumulation_dtype(filters, query), (query.shape[2], query.shape[3])
    tiled = _tiles(filters.to(wide))  # (B, h, w, T², C)
    at = _tiles(torch.stack(bounded(coordinates, size, radius), 1)).flatten(0, 2)  # (n, T², 2)
    corner = at.floor().long() - radius  # first of the integer positions around each filter's
    first = corner.amin(1)
    side = 2 * radius + 2 + TILE + SLACK
    shared = (corner.amax(1) + 2 * radius + 2 - first <= side).all(1)
    keys = query.to(wide).flatten(2).mT.reshape(-1, channels).contiguous()  # (B·Hq·Wq, C): rows are gathered
    per_image = tiled.shape[1] * tiled.shape[2]
    rows_before = torch.arange(batch, device=query.device).repeat_interleave(per_image) * (size[0] * size[1])
    weights, fraction = tiled.flatten(0, 2), at - at.floor()
    out = query.new_empty(len(at), TILE * TILE, (2 * radius + 1) ** 2)
    budget = BUDGET["cpu" if query.device.type == "cpu" else "accelerator"]
    for part in _chunks(shared, budget // (side * side * channels)):
        window = _window(keys, first[part], rows_before[part], size, side)  # (n, S², C)
        scores = torch.bmm(weights[part], window.mT)  # (n, T², S²)
        x, y = (corner[part] - first[part].unsqueeze(1)).unbind(2)
        places = y.new_tensor(range(2 * radius + 2))
        places = ((y.unsqueeze(2) + places) * side).unsqueeze(3) + (x.unsqueeze(2) + places).unsqueeze(2)
        out[part] = interpolate(scores.gather(2, places.flatten(2)), fraction[part], radius).to(out.dtype)
    for part in _chunks(~shared, budget // (TILE * TILE * (2 * radius + 2) ** 2 * channels)):
        before = rows_before[part].repeat_interleave(TILE * TILE)
        windows = _window(keys, corner[part].flatten(0, 1), before, size, 2 * radius + 2)  # (n·T², (2R+2)², C)
        scores = torch.bmm(windows, weights[part].flatten(0, 1).unsqueeze(2)).view(len(part), TILE * TILE, -1)
        out[part] = interpolate(scores, fraction[part], radius).to(out.dtype)
    out = out.view(*tiled.shape[:3], TILE, TILE, -1).transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return out[:, :height, :width].contiguous().permute(0, 3, 1, 2)


def bounded(coordinates: Tensor, size: tuple[int, int], radius: int) -> tuple[Tensor, Tensor]:
    """Positions `(B, 2, ·)` as x and y, moved to just outside the query where they are far away or not finite."""
    far = 2.0 * radius + 4  # scores are zero there
    x, y = (torch.where(values.isfinite(), values, -far) for values in coordinates.unbind(1))
    return x.clamp(-far, size[1] + far), y.clamp(-far, size[0] + far)


def interpolate(scores: Tensor, fraction: Tensor, radius: int) -> Tensor:
    """Scores at integer positions `(B, n, (2R+2)²)` → at the displacements `(B, n, (2R+1)²)`.

    Args:
        scores: at the integer positions around each filter's.
        fraction: of the position, `(B, n, 2)`.
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


def _chunks(chosen: Tensor, count: int) -> tuple[Tensor, ...]:
    """Indices of the chosen tiles, some at a time."""
    indices = chosen.nonzero().flatten()
    return indices.split(max(1, count)) if len(indices) else ()


def _window(keys: Tensor, first: Tensor, rows_before: Tensor, size: tuple[int, int], side: int) -> Tensor:
    """Features `(n, side², C)` of squares of the query from given pixels on, `(n, 2)`; zero outside the query."""
    axis = torch.arange(side, device=keys.device)
    columns, rows = first[:, :1] + axis, first[:, 1:] + axis  # (n, side)
    inside = ((rows >= 0) & (rows < size[0])).unsqueeze(2) & ((columns >= 0) & (columns < size[1])).unsqueeze(1)
    lines = rows.clamp(0, size[0] - 1) * size[1] + rows_before.unsqueeze(1)
    index = lines.unsqueeze(2) + columns.clamp(0, size[1] - 1).unsqueeze(1)
    window = keys.index_select(0, index.flatten()).view(len(first), side * side, keys.shape[1])
    return window if bool(inside.all()) else window.mul_(inside.view(len(first), -1, 1))
