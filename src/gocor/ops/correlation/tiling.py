"""Feature maps cut into tiles whose search windows are views, for local correlation by matrix products.

A tile of S×T reference pixels can reach a window of (S+2R)×(T+2R) query pixels. One matrix product of the tile with its
window holds every score of the tile; the (2R+1)² displacements of a pixel are a band of it. Pixels are stored strip by
strip (a strip is a column of tiles, as wide as a window), channels last, so that the windows of a strip overlap in
memory and only the borders between strips are stored twice.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import torch.nn.functional as F
from torch import Tensor

TILE = (2, 8)
# Elements of temporary memory per product: they fit a CPU's cache, or fill an accelerator.
BUDGET = {"cpu": 2**19, "accelerator": 2**27}

Part = tuple[slice, slice]


class Tiling(NamedTuple):
    """How a map of `height`×`width` is cut into tiles, and how many strips a matrix product takes."""

    radius: int
    height: int
    width: int
    strips: int
    rows: int
    strips_per_product: int

    @classmethod
    def of(cls, features: Tensor, radius: int) -> Self:
        """The tiling of a feature map `(B, C, H, W)`."""
        channels, height, width = features.shape[1:]
        strips, rows = -(-width // TILE[1]), -(-height // TILE[0])
        # A product over several strips copies their windows.
        per_strip = rows * (TILE[0] + 2 * radius) * (TILE[1] + 2 * radius) * (TILE[0] * TILE[1] + channels)
        budget = BUDGET["cpu" if features.device.type == "cpu" else "accelerator"]
        return cls(radius, height, width, strips, rows, max(1, budget // per_strip))

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of a tile's search window."""
        return TILE[0] + 2 * self.radius, TILE[1] + 2 * self.radius

    def parts(self, batch: int) -> Iterator[Part]:
        """Samples and strips of each matrix product: several whole samples if they fit, else some strips of one."""
        samples = max(1, self.strips_per_product // self.strips)
        for b in range(0, batch, samples):
            for i in range(0, self.strips, self.strips_per_product):
                yield slice(b, min(b + samples, batch)), slice(i, min(i + self.strips_per_product, self.strips))

    def windows(self, features: Tensor) -> Tensor:
        """Overlapping view `(B, strips, rows, (S+2R)(T+2R), C)` of the zero-padded features."""
        pad_y, pad_x = self.rows * TILE[0] - self.height, self.strips * TILE[1] - self.width
        radius, (window_y, window_x) = self.radius, self.window
        padded = F.pad(channels_last(features), (0, 0, radius, radius + pad_x, radius, radius + pad_y))
        strips = padded.unfold(2, window_x, TILE[1]).permute(0, 2, 1, 4, 3).contiguous()  # (B, strips, H+2R, T+2R, C)
        sb, ss, sy, sx, _ = strips.stride()
        shape = (len(strips), self.strips, self.rows, window_y * window_x, strips.shape[4])
        return strips.as_strided(shape, (sb, ss, TILE[0] * sy, sx, 1))

    def tiles(self, maps: Tensor) -> Tensor:
        """`(B, K, H, W)` → `(B, strips, rows, S, T, K)`, zero-padded to whole tiles."""
        pad_y, pad_x = self.rows * TILE[0] - self.height, self.strips * TILE[1] - self.width
        last = channels_last(maps)
        if pad_y or pad_x:
            last = F.pad(last, (0, 0, 0, pad_x, 0, pad_y))
        split = last.view(len(maps), self.rows, TILE[0], self.strips, TILE[1], maps.shape[1])
        return split.permute(0, 3, 1, 2, 4, 5)

    def empty_maps(self, count: int, like: Tensor) -> Tensor:
        """Uninitialised maps of whole tiles, `(B, count, rows·S, strips·T)`."""
        return like.new_empty(len(like), count, self.rows * TILE[0], self.strips * TILE[1])

    def split(self, maps: Tensor) -> Tensor:
        """View `(B, strips, rows, S, T, K)` of maps of whole tiles `(B, K, rows·S, strips·T)`."""
        split = maps.view(*maps.shape[:2], self.rows, TILE[0], self.strips, TILE[1])
        return split.permute(0, 4, 2, 3, 5, 1)

    def crop(self, maps: Tensor) -> Tensor:
        """Maps of whole tiles without their padding."""
        return maps[:, :, : self.height, : self.width].contiguous()

    def band(self, product: Tensor) -> Tensor:
        """View `(n, S, T, 2R+1, 2R+1)` of the displacements in products `(n, S·T, (S+2R)(T+2R))`."""
        side, (window_y, window_x) = 2 * self.radius + 1, self.window
        row = window_y * window_x
        strides = (TILE[0] * TILE[1] * row, TILE[1] * row + window_x, row + 1, window_x, 1)
        return product.as_strided((product.shape[0], *TILE, side, side), strides)

    def read_band(self, product: Tensor, tiles: Tensor) -> None:
        """Copy the displacements of products `(n, S·T, (S+2R)(T+2R))` into tiles `(…, S, T, (2R+1)²)`."""
        side = 2 * self.radius + 1
        tiles.unflatten(-1, (side, side)).copy_(self.band(product).unflatten(0, tiles.shape[:3]))

    def write_band(self, tiles: Tensor, product: Tensor) -> None:
        """The inverse of `read_band`. It leaves the elements of the products that are no displacements as they are."""
        side = 2 * self.radius + 1
        self.band(product).unflatten(0, tiles.shape[:3]).copy_(tiles.unflatten(-1, (side, side)))


def channels_last(maps: Tensor) -> Tensor:
    """`(B, K, H, W)` → `(B, H, W, K)`, contiguous."""
    if not maps.is_contiguous():
        return maps.permute(0, 2, 3, 1).contiguous()
    batch, count, height, width = maps.shape
    out = maps.new_empty(batch, height * width, count)
    for sample, into in zip(maps.flatten(2), out, strict=True):
        into.copy_(sample.t())  # a plain matrix: torch transposes it in blocks, four times faster than `permute`
    return out.view(batch, height, width, count)
