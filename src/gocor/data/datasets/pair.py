"""What every data set gives: a pair of images with the ground truth between them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ...utils.errors import InputError

Picture = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Points = NDArray[np.float64]


class Cameras(NamedTuple):
    """Two calibrated views: a point X of the reference's camera is at `rotation @ X + translation` of the query's.

    The intrinsic matrices and `rotation` are `(3, 3)`, `translation` is `(3,)`; its length has no meaning.
    """

    reference: Points
    query: Points
    rotation: Points
    translation: Points


class Truth(NamedTuple):
    """Ground truth as points.

    Attributes:
        start: `(N, 2)` as `(x, y)` in the reference; of dense ground truth, every valid pixel, row by row.
        end: `(N, 2)`, where the query shows them, inside it or not.
        occluded: `(N,)`, whether it does not show them; `None` where that is not known.
    """

    start: Points
    end: Points
    occluded: Mask | None


@dataclass(frozen=True, eq=False)
class Pair:
    """Two images and the ground truth between them: a dense flow, sparse points, or a homography (flow included).

    Attributes:
        name: unique within its data set.
        reference: RGB `(H, W, 3)`, uint8.
        query: RGB `(Hq, Wq, 3)`, uint8.
        flow: `(H, W, 2)` float32, reference pixel + flow = query pixel, x first; `None` where there are only points.
            Zero where it is not valid.
        valid: `(H, W)` bool, where the flow is known; goes with `flow`.
        occluded: `(H, W)` bool, where the query does not show a pixel; `None` where that is not known.
        points: `(N, 4)` rows x, y, x′, y′ of sparse ground truth, pixels of reference and query.
        homography: `(3, 3)`, reference → query, where the flow is one.
        cameras: calibration and relative pose, where known.
        group: what the pair belongs to within its data set: a sequence, a category, an interval.
        mirrored: whether the query shows its object mirrored (TSS); `None` where that is not known.
    """

    name: str
    reference: Picture = field(repr=False)
    query: Picture = field(repr=False)
    flow: NDArray[np.float32] | None = field(default=None, repr=False)
    valid: Mask | None = field(default=None, repr=False)
    occluded: Mask | None = field(default=None, repr=False)
    points: Points | None = field(default=None, repr=False)
    homography: Points | None = field(default=None, repr=False)
    cameras: Cameras | None = field(default=None, repr=False)
    group: str = ""
    mirrored: bool | None = None

    def __post_init__(self) -> None:
        for name in ("reference", "query"):
            image = getattr(self, name)
            if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
                raise InputError(
                    f"{self.name}: {name} must be RGB (H, W, 3), uint8, got {image.dtype} {tuple(image.shape)}"
                )
        if (self.flow is None) == (self.points is None):
            raise InputError(f"{self.name}: a pair has either a flow or points")
        if (self.flow is None) != (self.valid is None):
            raise InputError(f"{self.name}: flow and valid go together")
        size = self.reference.shape[:2]
        for name, shape in (("flow", (*size, 2)), ("valid", size), ("occluded", size), ("homography", (3, 3))):
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise InputError(f"{self.name}: {name} must have shape {shape} like the reference, got {value.shape}")
        if self.points is not None and (self.points.ndim != 2 or self.points.shape[1] != 4):
            raise InputError(f"{self.name}: points must have rows x, y, x', y', got shape {self.points.shape}")

    def truth(self) -> Truth:
        """The ground truth as points, in float64; of a homography, computed from it and not from the rounded flow."""
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


def homography_flow(homography: Points, size: Sequence[int]) -> tuple[Points, Mask]:
    """Flow `(H, W, 2)` float64 of a 3×3 homography, and where it is defined, `(H, W)`: in front of the horizon.

    Beyond it the depth is taken as one: a number, far from anything, and not a point that the query shows.
    """
    matrix = np.asarray(homography, np.float64)
    matrix = matrix / matrix[2, 2]
    y, x = np.mgrid[: size[0], : size[1]].astype(np.float64)
    across, down, depth = (row[0] * x + row[1] * y + row[2] for row in matrix)
    valid = depth > 1e-9
    depth = np.where(valid, depth, 1.0)
    return np.stack([across / depth - x, down / depth - y], -1), valid


def homography_pair(name: str, reference: Picture, query: Picture, homography: Points, **fields: Any) -> Pair:
    """A pair whose ground truth is a homography, reference → query."""
    flow, valid = homography_flow(homography, reference.shape[:2])
    flow = np.where(valid[..., None], flow, 0)
    return Pair(name, reference, query, flow.astype(np.float32), valid, homography=homography, **fields)


class Item(NamedTuple):
    """A pair that has not been read yet."""

    name: str
    read: Callable[[], Pair]
    group: str = ""


class PairDataset(Sequence[Pair]):
    """Pairs in a fixed order, each read from its files when it is asked for.

    Args:
        name: of the data set.
        items: the pairs; their names must be unique.
    """

    def __init__(self, name: str, items: Sequence[Item]) -> None:
        self.name = name
        self.items = tuple(items)
        if len({item.name for item in self.items}) < len(self.items):
            raise InputError(f"{name} has pairs of one name")

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
        """At most `count` pairs, evenly spread."""
        if count < 1:
            raise InputError(f"the number of pairs must be at least 1, got {count}")
        if count >= len(self):
            return self
        chosen = sorted({int(i) for i in np.linspace(0, len(self) - 1, count).round()})
        return PairDataset(self.name, [self.items[i] for i in chosen])
