"""Pairs sorted by their sizes, so that pairs of equal sizes are matched together.

A batch begins with the pair that has waited longest. Pairs that share an image with the batch come next, so that the
features of the image are computed once and need not be kept for long.
"""

from collections import OrderedDict, deque
from pathlib import Path
from typing import NamedTuple

from ..utils.arrays import Picture
from .job import Note
from .pairs import Pair


class Loaded(NamedTuple):
    """A pair whose images were read."""

    pair: Pair
    note: Note
    reference: Picture
    query: Picture

    @property
    def sizes(self) -> tuple[int, ...]:
        """Height and width of the reference and of the query."""
        return *self.reference.shape[:2], *self.query.shape[:2]

    @property
    def files(self) -> set[Path]:
        """Both image files."""
        return {self.pair.reference, self.pair.query}

    @property
    def bytes(self) -> int:
        """Memory of both pictures."""
        return self.reference.nbytes + self.query.nbytes


class Buckets:
    """Loaded pairs that wait for others of the same sizes.

    Args:
        batch: number of pairs that are matched at once.

    Attributes:
        count: pairs that wait.
        bytes: memory of their pictures.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._waiting: OrderedDict[tuple[int, ...], deque[Loaded]] = OrderedDict()  # the longest wait first
        self.count = self.bytes = 0

    def add(self, loaded: Loaded) -> None:
        """Add a pair to its bucket."""
        self._waiting.setdefault(loaded.sizes, deque()).append(loaded)
        self.count += 1
        self.bytes += loaded.bytes

    def take_full(self) -> list[Loaded]:
        """A full batch; empty if no bucket has so many pairs."""
        full = next((sizes for sizes, bucket in self._waiting.items() if len(bucket) >= self._batch), None)
        return [] if full is None else self._take(full)

    def take_oldest(self) -> list[Loaded]:
        """The batch, full or not, whose bucket has waited longest; empty if no pair waits."""
        return self._take(next(iter(self._waiting))) if self._waiting else []

    def _take(self, sizes: tuple[int, ...]) -> list[Loaded]:
        bucket = self._waiting.pop(sizes)
        taken = [bucket.popleft()]
        while bucket and len(taken) < self._batch:
            images = {path for loaded in taken for path in loaded.files}
            related = next((i for i, loaded in enumerate(bucket) if images & loaded.files), 0)
            taken.append(bucket[related])
            del bucket[related]
        if bucket:
            self._waiting[sizes] = bucket
        self.count -= len(taken)
        self.bytes -= sum(loaded.bytes for loaded in taken)
        return taken
