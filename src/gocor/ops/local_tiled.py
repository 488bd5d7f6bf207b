"""Local correlation as batched matrix products: the fastest of the plain-torch forms.

A tile of S×T filters meets the window of (S+2R)×(T+2R) query pixels that its filters can reach, in one matrix
product; the displacements are a band of that product, read with strides. About half of the products are thrown away,
yet matrix units make the rest far cheaper than (2R+1)² passes over the features. Pixels are kept in columns of tiles,
channels last, so that the windows of one column are a view: they overlap, and only the columns' borders are stored
twice. `docs/performance.md` has the measurements.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .local_reference import accumulation_dtype, transpose_volume

TILE = (2, 8)
# Elements of temporary memory per product: what stays in cache on a CPU, what fills the device on an accelerator.
BUDGET = {"cpu": 2**19, "accelerator": 2**27}

Part = tuple[slice, slice]


class Tiling(NamedTuple):
    """How a map of `height`×`width` falls into columns and rows of tiles, and how many columns a product takes."""

    radius: int
    height: int
    width: int
    columns: int
    rows: int
    columns_per_product: int

    @classmethod
    def of(cls, features: Tensor, radius: int) -> "Tiling":
        """The tiling of a feature map `(B, C, H, W)`."""
        channels, height, width = features.shape[1:]
        columns, rows = -(-width // TILE[1]), -(-height // TILE[0])
        # The product, and the windows, which are copied where it takes more than one column.
        per_column = rows * (TILE[0] + 2 * radius) * (TILE[1] + 2 * radius) * (TILE[0] * TILE[1] + channels)
        budget = BUDGET["cpu" if features.device.type == "cpu" else "accelerator"]
        return cls(radius, height, width, columns, rows, max(1, budget // per_column))

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the window that a tile's filters reach."""
        return TILE[0] + 2 * self.radius, TILE[1] + 2 * self.radius

    def parts(self, batch: int) -> Iterator[Part]:
        """Samples and columns of each matrix product: whole samples together while they fit, else part of one."""
        samples = max(1, self.columns_per_product // self.columns)
        for b in range(0, batch, samples):
            for i in range(0, self.columns, self.columns_per_product):
                yield slice(b, min(b + samples, batch)), slice(i, min(i + self.columns_per_product, self.columns))

    def windows(self, features: Tensor) -> Tensor:
        """View `(B, columns, rows, (S+2R)(T+2R), C)` of the zero-padded features, overlapping."""
        pad_y, pad_x = self.rows * TILE[0] - self.height, self.columns * TILE[1] - self.width
        radius, (window_y, window_x) = self.radius, self.window
        padded = F.pad(channels_last(features), (0, 0, radius, radius + pad_x, radius, radius + pad_y))
        strips = padded.unfold(2, window_x, TILE[1]).permute(0, 2, 1, 4, 3).contiguous()  # (B, columns, H+2R, T+2R, C)
        sb, sc, sy, sx, _ = strips.stride()
        shape = (len(strips), self.columns, self.rows, window_y * window_x, strips.shape[4])
        return strips.as_strided(shape, (sb, sc, TILE[0] * sy, sx, 1))

    def tiles(self, maps: Tensor) -> Tensor:
        """`(B, K, H, W)` → `(B, columns, rows, S·T, K)`, zero-padded to whole tiles."""
        pad_y, pad_x = self.rows * TILE[0] - self.height, self.columns * TILE[1] - self.width
        last = channels_last(maps)
        if pad_y or pad_x:
            last = F.pad(last, (0, 0, 0, pad_x, 0, pad_y))
        split = last.view(len(maps), self.rows, TILE[0], self.columns, TILE[1], maps.shape[1])
        return split.permute(0, 3, 1, 2, 4, 5).flatten(3, 4)

    def maps(self, tiles: Tensor) -> Tensor:
        """Inverse of `tiles`, the padding cut off."""
        batch, count = len(tiles), tiles.shape[-1]
        split = tiles.view(batch, self.columns, self.rows, *TILE, count).permute(0, 2, 3, 1, 4, 5)
        last = split.reshape(batch, self.rows * TILE[0], self.columns * TILE[1], count)
        return channels_first(last[:, : self.height, : self.width].contiguous())

    def band(self, product: Tensor) -> Tensor:
        """View `(n, S, T, 2R+1, 2R+1)` of the products `(n, S·T, (S+2R)(T+2R))` that are displacements of a filter."""
        side, (window_y, window_x) = 2 * self.radius + 1, self.window
        row = window_y * window_x
        strides = (TILE[0] * TILE[1] * row, TILE[1] * row + window_x, row + 1, window_x, 1)
        return product.as_strided((product.shape[0], *TILE, side, side), strides)

    def read(self, product: Tensor, tiles: Tensor) -> None:
        """Copy the displacements of products `(n, S·T, (S+2R)(T+2R))` into a part of tiles `(…, S·T, (2R+1)²)`."""
        side = 2 * self.radius + 1
        split = tiles.unflatten(-1, (side, side)).unflatten(-3, TILE)
        split.copy_(self.band(product).unflatten(0, tiles.shape[:3]))

    def write(self, tiles: Tensor, product: Tensor) -> None:
        """The inverse of `read`: what is beside the displacements is left as it is."""
        band = self.band(product)
        band.unflatten(0, tiles.shape[:3]).copy_(tiles.unflatten(-1, band.shape[-2:]).unflatten(-3, TILE))


def correlate(reference: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.correlate`."""
    acc, tiling = accumulation_dtype(reference.dtype), Tiling.of(reference, radius)
    windows, filters = tiling.windows(query.to(acc)), tiling.tiles(reference.to(acc) * scale)
    volume = filters.new_empty(*filters.shape[:4], (2 * radius + 1) ** 2)
    for part in tiling.parts(len(filters)):
        product = torch.bmm(filters[part].flatten(0, 2), windows[part].flatten(0, 2).mT)
        tiling.read(product, volume[part])
    return tiling.maps(volume).to(reference.dtype)


def adjoint_reference(volume: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.adjoint_reference`."""
    acc, tiling = accumulation_dtype(query.dtype), Tiling.of(query, radius)
    windows, scores = tiling.windows(query.to(acc) * scale), tiling.tiles(volume.to(acc))
    out = scores.new_empty(*scores.shape[:4], query.shape[1])
    banded = scores.new_empty(0)
    for part in tiling.parts(len(scores)):
        w = windows[part].flatten(0, 2)
        if len(banded) != len(w):  # zero beside the band, which every product writes anew
            banded = w.new_zeros(len(w), TILE[0] * TILE[1], w.shape[1])
        tiling.write(scores[part], banded)
        out[part] = torch.bmm(banded, w).view(out[part].shape)
    return tiling.maps(out).to(query.dtype)


def adjoint_query(volume: Tensor, reference: Tensor, radius: int, scale: float) -> Tensor:
    """See `local_reference.adjoint_query`: the other adjoint, of the volume seen from the query."""
    return adjoint_reference(transpose_volume(volume, radius), reference, radius, scale)


def channels_last(maps: Tensor) -> Tensor:
    """`(B, K, H, W)` → `(B, H, W, K)`, contiguous."""
    if maps.device.type != "cpu" or not maps.is_contiguous():
        return maps.permute(0, 2, 3, 1).contiguous()
    batch, count, height, width = maps.shape
    out = maps.new_empty(batch, height * width, count)
    for sample, into in zip(maps.flatten(2), out, strict=True):
        into.copy_(sample.t())  # a matrix: torch then transposes in blocks, four times faster than `permute`
    return out.view(batch, height, width, count)


def channels_first(maps: Tensor) -> Tensor:
    """`(B, H, W, K)`, contiguous → `(B, K, H, W)`, contiguous."""
    if maps.device.type != "cpu":
        return maps.permute(0, 3, 1, 2).contiguous()
    batch, height, width, count = maps.shape
    out = maps.new_empty(batch, count, height * width)
    for sample, into in zip(maps.flatten(1, 2), out, strict=True):
        into.copy_(sample.t())
    return out.view(batch, count, height, width)
