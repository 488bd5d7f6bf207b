"""Image pairs with ground truth, and data sets of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np

from ...ops.homography import project
from ...utils.arrays import Array, FlowField, Mask, Picture
from ...utils.errors import InputError

MIN_DEPTH = 1e-9  # A homography is defined for points whose third coordinate is larger: those in front of its horizon.


class Cameras(NamedTuple):
    """Calibration and relative pose of two cameras.

    A point X in the coordinates of the reference camera is `rotation @ X + translation` in those of the query camera.
    `reference` and `query` are the intrinsic matrices `(3, 3)`; `rotation` is `(3, 3)`; `translation` is `(3,)`, known
    up to its length.
    """

    reference: Array
    query: Array
    rotation: Array
    translation: Array


class Truth(NamedTuple):
    """Ground truth as points.

    Attributes:
        start: `(N, 2)`, points `(x, y)` in the reference; for dense ground truth every valid pixel, row by row.
        end: `(N, 2)`, their positions in the query, which may lie outside of it.
        occluded: `(N,)`, the points that are occluded in the query; `None` if that is not known.
    """

    start: Array
    end: Array
    occluded: Mask | None


@dataclass(frozen=True, eq=False)
class Pair:
    """Two images and the ground truth between them: a dense flow, sparse points, or a homography with its flow.

    Attributes:
        name: unique within its data set.
        reference: RGB `(H, W, 3)`, uint8.
        query: RGB `(Hq, Wq, 3)`, uint8.
        flow: `(H, W, 2)` float32, reference pixel + flow = query pixel, x first; zero where it is not valid. `None` if
            the ground truth is sparse.
        valid: `(H, W)` bool, the pixels whose flow is known; given if and only if `flow` is.
        occluded: `(H, W)` bool, the pixels that are occluded in the query; `None` if that is not known.
        points: `(N, 4)`, sparse ground truth in rows x, y, x′, y′: pixels of the reference and of the query.
        homography: `(3, 3)`, reference → query, if the flow is a homography.
        cameras: calibration and relative pose, if known.
        group: part of the data set that the pair belongs to: a sequence, a category, an interval.
        mirrored: whether the query shows the object mirrored (TSS); `None` if that is not known.
    """

    name: str
    reference: Picture = field(repr=False)
    query: Picture = field(repr=False)
    flow: FlowField | None = field(default=None, repr=False)
    valid: Mask | None = field(default=None, repr=False)
    occluded: Mask | None = field(default=None, repr=False)
    points: Array | None = field(default=None, repr=False)
    homography: Array | None = field(default=None, repr=False)
    cameras: Cameras | None = field(default=None, repr=False)
    group: str = ""
    mirrored: bool | None = None

    def __post_init__(self) -> None:
        for name in ("reference", "query"):
            image = getattr(self, name)
            if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
                raise InputError(
                    f"{self.name}: {name} must be RGB (H, W, 3) uint8, got {image.dtype} {tuple(image.shape)}"
                )
        if (self.flow is None) == (self.points is None):
            got = "neither" if self.flow is None else "both"
            raise InputError(f"{self.name}: a pair has either a flow or points, got {got}")
        if (self.flow is None) != (self.valid is None):
            raise InputError(f"{self.name}: flow and valid must be given together")
        size = self.reference.shape[:2]
        for name, shape in (("flow", (*size, 2)), ("valid", size), ("occluded", size), ("homography", (3, 3))):
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise InputError(f"{self.name}: {name} must have shape {shape}, got {value.shape}")
        if self.points is not None and (self.points.ndim != 2 or self.points.shape[1] != 4):
            raise InputError(f"{self.name}: points must have rows x, y, x', y', got shape {self.points.shape}")

    def truth(self) -> Truth:
        """The ground truth as points in float64; those of a homography are computed from the matrix, not the flow."""
        if self.points is not None:
            return Truth(self.points[:, :2].astype(np.float64), self.points[:, 2:].astype(np.float64), None)
        assert self.flow is not None
        assert self.valid is not None
        rows, columns = np.nonzero(self.valid)
        start = np.stack([columns, rows], 1).astype(np.float64)
        if self.homography is not None:
            end = start + homography_flow(self.homography, self.valid.shape)[0][rows, columns]
        else:
            end = start + self.flow[rows, columns]
        return Truth(start, end, None if self.occluded is None else self.occluded[rows, columns])


def homography_flow(homography: Array, size: Sequence[int]) -> tuple[Array, Mask]:
    """Flow `(H, W, 2)` float64 of a 3×3 homography, and the mask `(H, W)` of the pixels in front of its horizon.

    Pixels beyond the horizon have no image in the query; their flow is 0.
    """
    matrix = np.asarray(homography, np.float64)
    matrix = matrix / matrix[2, 2]
    points = np.stack(np.meshgrid(np.arange(size[1]), np.arange(size[0]), indexing="xy"), -1).astype(np.float64)
    valid = points @ matrix[2, :2] + matrix[2, 2] > MIN_DEPTH
    return np.where(valid[..., None], project(matrix, points, MIN_DEPTH) - points, 0), valid


def homography_pair(name: str, reference: Picture, query: Picture, homography: Array, **fields: Any) -> Pair:
    """A pair whose ground truth is a homography, reference → query."""
    flow, valid = homography_flow(homography, reference.shape[:2])
    return Pair(name, reference, query, flow.astype(np.float32), valid, homography=homography, **fields)


class Item(NamedTuple):
    """A pair of a data set: its name, the function that reads it, and its group."""

    name: str
    read: Callable[[], Pair]
    group: str = ""


class PairDataset(Sequence[Pair]):
    """A sequence of pairs, each of which is read from its files when it is accessed.

    Args:
        name: name of the data set.
        items: the pairs; their names must be unique.
    """

    def __init__(self, name: str, items: Sequence[Item]) -> None:
        self.name = name
        self.items = tuple(items)
        if len({item.name for item in self.items}) < len(self.items):
            raise InputError(f"the pairs of {name} must have different names")

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> "PairDataset": ...
    def __getitem__(self, index: int | slice) -> "Pair | PairDataset":
        if isinstance(index, slice):
            return PairDataset(self.name, self.items[index])
        return self.items[index].read()

    def __iter__(self) -> Iterator[Pair]:
        return (item.read() for item in self.items)

    def __repr__(self) -> str:
        return f"PairDataset({self.name!r}, {len(self)} pairs)"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the pairs."""
        return tuple(item.name for item in self.items)

    def spread(self, count: int) -> "PairDataset":
        """At most `count` pairs, evenly spaced over the data set."""
        if count < 1:
            raise InputError(f"the number of pairs must be at least 1, got {count}")
        if count >= len(self):
            return self
        chosen = sorted({int(i) for i in np.linspace(0, len(self) - 1, count).round()})
        return PairDataset(self.name, [self.items[i] for i in chosen])
