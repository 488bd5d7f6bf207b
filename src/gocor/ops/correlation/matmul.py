"""Local correlation as batched matrix products of tiles with their search windows, in plain torch."""

import torch
from torch import Tensor

from .reference import accumulation_dtype, transpose_volume
from .tiling import TILE, Tiling


def correlate(
    reference: Tensor, query: Tensor, radius: int, scale: float, *, dtype: torch.dtype | None = None
) -> Tensor:
    """See `reference.correlate`."""
    acc, tiling = accumulation_dtype(reference, query), Tiling.of(reference, radius)
    windows, tiles = tiling.windows(query.to(acc)), tiling.tiles(reference.to(acc) * scale)
    volume = tiling.empty_maps((2 * radius + 1) ** 2, tiles)
    scores = tiling.split(volume)
    for part in tiling.parts(len(tiles)):
        a, w = tiles[part].flatten(0, 2).flatten(1, 2), windows[part].flatten(0, 2)
        tiling.read_band(torch.bmm(a, w.mT), scores[part])
    return tiling.crop(volume).to(dtype or reference.dtype)


def adjoint_reference(
    volume: Tensor, query: Tensor, radius: int, scale: float, *, dtype: torch.dtype | None = None
) -> Tensor:
    """See `reference.adjoint_reference`."""
    acc, tiling = accumulation_dtype(volume, query), Tiling.of(query, radius)
    windows, scores = tiling.windows(query.to(acc) * scale), tiling.tiles(volume.to(acc))
    out = tiling.empty_maps(query.shape[1], windows)
    tiles = tiling.split(out)
    products = windows.new_zeros(0)
    for part in tiling.parts(len(windows)):
        w = windows[part].flatten(0, 2)
        if len(products) != len(w):
            products = w.new_zeros(len(w), TILE[0] * TILE[1], w.shape[1])  # zero outside the band
        tiling.write_band(scores[part], products)
        tiles[part].copy_(torch.bmm(products, w).view(tiles[part].shape))
    return tiling.crop(out).to(dtype or query.dtype)


def adjoint_query(
    volume: Tensor, reference: Tensor, radius: int, scale: float, *, dtype: torch.dtype | None = None
) -> Tensor:
    """See `reference.adjoint_query`. It equals the other adjoint, of the volume as seen from the query."""
    return adjoint_reference(transpose_volume(volume, radius), reference, radius, scale, dtype=dtype)
