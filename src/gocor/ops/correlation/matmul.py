"""Local correlation as batched matrix products: the fastest of the plain-torch forms.

A tile of S×T filters meets the window of (S+2R)×(T+2R) query pixels that its filters can reach, in one matrix
product; the displacements are a band of that product, read with strides. About half to two thirds of the products
are thrown away, yet matrix units make the rest far cheaper than (2R+1)² passes over the features.
`docs/performance.md` has the measurements.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import accumulation_dtype, transpose_volume

TILE = (4, 8)
# Elements of temporary memory per product: what stays in cache on a CPU, what fills the device on an accelerator.
BUDGET = {"cpu": 2**20, "accelerator": 2**27}


class Tiling(NamedTuple):
    """How a map of `height`×`width` falls into rows and columns of tiles, and how many tile rows a product takes."""

    radius: int
    height: int
    width: int
    rows: int
    columns: int
    rows_per_product: int

    @classmethod
    def of(cls, features: Tensor, radius: int) -> "Tiling":
        """The tiling of a feature map `(B, C, H, W)`."""
        channels, height, width = features.shape[1:]
        rows, columns = -(-height // TILE[0]), -(-width // TILE[1])
        window = (TILE[0] + 2 * radius) * (TILE[1] + 2 * radius)
        budget = BUDGET["cpu" if features.device.type == "cpu" else "accelerator"]
        per_row = columns * window * (channels + TILE[0] * TILE[1])
        return cls(radius, height, width, rows, columns, max(1, min(rows, budget // per_row)))

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the window that a tile's filters reach."""
        return TILE[0] + 2 * self.radius, TILE[1] + 2 * self.radius

    def products(self, batch: int) -> Iterator[tuple[slice, slice]]:
        """Samples and tile rows of each matrix product: whole samples together while they fit, else part of one."""
        samples = max(1, self.rows_per_product // self.rows)
        for b in range(0, batch, samples):
            for i in range(0, self.rows, self.rows_per_product):
                yield slice(b, min(b + samples, batch)), slice(i, min(i + self.rows_per_product, self.rows))

    def windows(self, features: Tensor) -> Tensor:
        """View `(B, rows, columns, S+2R, T+2R, C)` of the zero-padded features, overlapping."""
        pad_y, pad_x = self.rows * TILE[0] - self.height, self.columns * TILE[1] - self.width
        padded = F.pad(features, (self.radius, self.radius + pad_x, self.radius, self.radius + pad_y))
        padded = padded.permute(0, 2, 3, 1).contiguous()
        sb, sy, sx, sc = padded.stride()
        shape = (padded.shape[0], self.rows, self.columns, *self.window, padded.shape[3])
        return padded.as_strided(shape, (sb, TILE[0] * sy, TILE[1] * sx, sy, sx, sc))

    def split(self, maps: Tensor) -> Tensor:
        """`(B, K, H, W)` → `(B, K, rows, S, columns, T)`, zero-padded to whole tiles."""
        pad_y, pad_x = self.rows * TILE[0] - self.height, self.columns * TILE[1] - self.width
        padded = F.pad(maps, (0, pad_x, 0, pad_y)) if pad_x or pad_y else maps.contiguous()
        return padded.view(*maps.shape[:2], self.rows, TILE[0], self.columns, TILE[1])

    def join(self, tiles: Tensor) -> Tensor:
        """Inverse of `split`, the padding cut off."""
        maps = tiles.view(*tiles.shape[:2], self.rows * TILE[0], self.columns * TILE[1])
        return maps[:, :, : self.height, : self.width].contiguous()

    def band(self, product: Tensor) -> Tensor:
        """View `(n, S, T, 2R+1, 2R+1)` of the products `(n, S·T, (S+2R)(T+2R))` that are displacements of a filter."""
        side, (window_y, window_x) = 2 * self.radius + 1, self.window
        row = window_y * window_x
        strides = (TILE[0] * TILE[1] * row, TILE[1] * row + window_x, row + 1, window_x, 1)
        return product.as_strided((product.shape[0], *TILE, side, side), strides)


def correlate(reference: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.correlate`."""
    acc, tiling = accumulation_dtype(reference.dtype), Tiling.of(reference, radius)
    windows, filters = tiling.windows(query.to(acc)), tiling.split(reference.to(acc) * scale)
    volume = filters.new_empty(len(filters), (2 * radius + 1) ** 2, *filters.shape[2:])
    band_first = volume.permute(0, 2, 4, 3, 5, 1)  # (B, rows, columns, S, T, (2R+1)²)
    filters = filters.permute(0, 2, 4, 3, 5, 1).contiguous()  # (B, rows, columns, S, T, C)
    for part in tiling.products(len(filters)):
        a, w = filters[part].flatten(0, 2).flatten(1, 2), windows[part].flatten(0, 2).flatten(1, 2)
        band = tiling.band(torch.bmm(a, w.mT)).unflatten(0, filters[part].shape[:3])
        band_first[part].unflatten(-1, band.shape[-2:]).copy_(band)
    return tiling.join(volume).to(reference.dtype)


def adjoint_reference(volume: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.adjoint_reference`."""
    acc, tiling = accumulation_dtype(query.dtype), Tiling.of(query, radius)
    windows, scores = tiling.windows(query.to(acc) * scale), tiling.split(volume.to(acc))
    out = scores.new_empty(len(scores), query.shape[1], *scores.shape[2:])
    scores, out_tiles = scores.permute(0, 2, 4, 3, 5, 1), out.permute(0, 2, 4, 3, 5, 1)
    for part in tiling.products(len(scores)):
        w = windows[part].flatten(0, 2).flatten(1, 2)
        banded = w.new_zeros(len(w), TILE[0] * TILE[1], w.shape[1])
        band = tiling.band(banded)
        band.unflatten(0, scores[part].shape[:3]).copy_(scores[part].unflatten(-1, band.shape[-2:]))
        out_tiles[part].copy_(torch.bmm(banded, w).view(out_tiles[part].shape))
    return tiling.join(out).to(query.dtype)


def adjoint_query(volume: Tensor, reference: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.adjoint_query`: the other adjoint, of the volume seen from the query."""
    return adjoint_reference(transpose_volume(volume, radius), reference, radius, scale)
