"""Keypoints of every photo, and matches of every pair that refer to them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..utils.arrays import Array
from .anchors import nearest_points
from .photos import Photo
from .store import PairMatches

SNAP = 0.5  # pixels: an anchor that is found so close to an anchor of the other image is the same point

IndexPairs = NDArray[np.uint32]


@dataclass(frozen=True)
class MatchGraph:
    """Keypoints and matches of a collection.

    Attributes:
        photos: the photos, N of them.
        keypoints: for each photo, `(K, 2)`, x first, in pixels of the upright picture; its anchors come first.
        matches: by the indices of two photos, the indices of their matched keypoints, `(M, 2)`.
        confidence: confidences of these matches, `(M,)`.
    """

    photos: Sequence[Photo]
    keypoints: list[Array]
    matches: dict[tuple[int, int], IndexPairs]
    confidence: dict[tuple[int, int], Array]


def build_graph(photos: Sequence[Photo], pairs: Iterable[tuple[tuple[int, int], PairMatches]]) -> MatchGraph:
    """Collect the matches of all pairs.

    An anchor of photo i that several pairs find in photos j, k, … is one keypoint of i, so that its matches form a
    track through i, j, k, … Where it is found is a new keypoint of j, unless an anchor of j is at most `SNAP` away.

    Args:
        photos: the collection.
        pairs: indices of two photos, the reference first, and what was found.
    """
    builder = _Builder(photos)
    for edge, found in pairs:
        builder.add(edge, found)
    keypoints = [np.concatenate(parts) if parts else np.zeros((0, 2)) for parts in builder.parts]
    return MatchGraph(photos, keypoints, builder.matches, builder.confidence)


class _Builder:
    def __init__(self, photos: Sequence[Photo]) -> None:
        self.photos = photos
        self.parts: list[list[Array]] = [[] for _ in photos]
        self.counts = [0] * len(photos)
        self.matches: dict[tuple[int, int], IndexPairs] = {}
        self.confidence: dict[tuple[int, int], Array] = {}

    def add(self, edge: tuple[int, int], found: PairMatches) -> None:
        first, second = edge
        anchors, others = found.reference_anchors.astype(np.float64), found.query_anchors.astype(np.float64)
        for photo, points in ((first, anchors), (second, others)):
            if not self.counts[photo]:
                self._append(photo, points)
        ahead = self._keypoints(second, found.forward.points, others)
        back = self._keypoints(first, found.backward.points, anchors)
        rows = np.concatenate(
            [np.stack([found.forward.anchors, ahead], 1), np.stack([back, found.backward.anchors], 1)]
        )
        confidence = np.concatenate([found.forward.confidence, found.backward.confidence])
        kept = _one_to_one(rows, confidence)
        self.matches[edge] = rows[kept].astype(np.uint32)
        self.confidence[edge] = confidence[kept]

    def _keypoints(self, photo: int, points: Array, anchors: Array) -> NDArray[np.intp]:
        """Indices of the keypoints at points: anchors close by, or new ones."""
        nearest = nearest_points(anchors, points, self.photos[photo].size, 1)
        distance = np.linalg.norm(anchors[nearest] - points, axis=1) if len(anchors) else np.zeros(len(points))
        indices = np.where((nearest >= 0) & (distance <= SNAP), nearest, -1)
        new = np.flatnonzero(indices < 0)
        indices[new] = self._append(photo, points[new])
        return indices

    def _append(self, photo: int, points: Array) -> NDArray[np.intp]:
        start = self.counts[photo]
        self.parts[photo].append(points)
        self.counts[photo] += len(points)
        return np.arange(start, start + len(points))


def _one_to_one(rows: NDArray[np.intp], confidence: Array) -> NDArray[np.intp]:
    """Indices of the matches that remain if every keypoint keeps its most confident one."""
    order = np.argsort(-confidence, kind="stable")
    for side in (0, 1):
        _, first = np.unique(rows[order, side], return_index=True)
        order = order[np.sort(first)]
    return order
