"""Feature maps in columns of tiles, channels last: what local GOCor's iterations on a CPU work on.

As in `local_tiled`, a tile of S×T filters meets the window of (S+2R)×(T+2R) pixels that they can reach in one matrix
product. Here pixels are stored column by column of tiles, so that the windows of one column are a view: they overlap,
and only the columns' borders are stored twice. That pays where windows are used many times.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

TILE = (2, 8)
BUDGET = 2**19  # elements of temporary memory per product: what stays in cache

Part = tuple[slice, slice]


class Columns(NamedTuple):
    """How a map of `height`×`width` falls into columns and rows of tiles, and how many columns a product takes."""

    radius: int
    height: int
    width: int
    columns: int
    rows: int
    columns_per_product: int

    @classmethod
    def of(cls, features: Tensor, radius: int) -> "Columns":
        """The tiling of a feature map `(B, C, H, W)`."""
        channels, height, width = features.shape[1:]
        columns, rows = -(-width // TILE[1]), -(-height // TILE[0])
        # The product, and the windows, which are copied where it takes more than one column.
        per_column = rows * (TILE[0] + 2 * radius) * (TILE[1] + 2 * radius) * (TILE[0] * TILE[1] + channels)
        return cls(radius, height, width, columns, rows, max(1, BUDGET // per_column))

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
        """`(B, K, H, W)` → `(B, columns, rows, S, T, K)`, zero-padded to whole tiles."""
        pad_y, pad_x = self.rows * TILE[0] - self.height, self.columns * TILE[1] - self.width
        last = channels_last(maps)
        if pad_y or pad_x:
            last = F.pad(last, (0, 0, 0, pad_x, 0, pad_y))
        split = last.view(len(maps), self.rows, TILE[0], self.columns, TILE[1], maps.shape[1])
        return split.permute(0, 3, 1, 2, 4, 5)

    def split(self, maps: Tensor) -> Tensor:
        """View `(B, columns, rows, S, T, K)` of maps of whole tiles `(B, K, rows·S, columns·T)`."""
        split = maps.view(*maps.shape[:2], self.rows, TILE[0], self.columns, TILE[1])
        return split.permute(0, 4, 2, 3, 5, 1)

    def empty_volume(self, like: Tensor) -> Tensor:
        """Scores of whole tiles, to be filled: `(B, (2R+1)², rows·S, columns·T)`."""
        side = 2 * self.radius + 1
        return like.new_empty(len(like), side * side, self.rows * TILE[0], self.columns * TILE[1])

    def band(self, product: Tensor) -> Tensor:
        """View `(n, S, T, 2R+1, 2R+1)` of the products `(n, S·T, (S+2R)(T+2R))` that are displacements of a filter."""
        side, (window_y, window_x) = 2 * self.radius + 1, self.window
        row = window_y * window_x
        strides = (TILE[0] * TILE[1] * row, TILE[1] * row + window_x, row + 1, window_x, 1)
        return product.as_strided((product.shape[0], *TILE, side, side), strides)

    def read(self, product: Tensor, tiles: Tensor) -> None:
        """Copy the displacements of products `(n, S·T, (S+2R)(T+2R))` into a part of tiles `(…, S, T, (2R+1)²)`."""
        side = 2 * self.radius + 1
        tiles.unflatten(-1, (side, side)).copy_(self.band(product).unflatten(0, tiles.shape[:3]))


def channels_last(maps: Tensor) -> Tensor:
    """`(B, K, H, W)` → `(B, H, W, K)`, contiguous."""
    if not maps.is_contiguous():
        return maps.permute(0, 2, 3, 1).contiguous()
    batch, count, height, width = maps.shape
    out = maps.new_empty(batch, height * width, count)
    for sample, into in zip(maps.flatten(2), out, strict=True):
        into.copy_(sample.t())  # a matrix: torch then transposes in blocks, four times faster than `permute`
    return out.view(batch, height, width, count)
