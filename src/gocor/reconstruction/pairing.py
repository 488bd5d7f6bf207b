"""Which photos of a collection are matched with each other."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from ..data.io import read_image
from ..matching.images import to_batch
from ..models.network import MatchingNetwork
from ..models.resizing import resize_image
from ..pipeline.pairs import Pair
from ..utils.arrays import Array
from ..utils.checks import check_count
from ..utils.errors import InputError
from .photos import Photo

Pairing = Literal["exhaustive", "sequential", "similar"]
Edges = list[tuple[int, int]]
"""Pairs of photos by their indices, the smaller one first."""


def exhaustive_pairs(count: int) -> Edges:
    """All pairs of photos."""
    return list(combinations(range(count), 2))


def sequential_pairs(count: int, neighbours: int) -> Edges:
    """Each photo with the photos that follow it, for photos that were taken one after the other."""
    check_count("neighbours", neighbours, minimum=1)
    return [(i, j) for i, j in exhaustive_pairs(count) if j - i <= neighbours]


def similar_pairs(similarity: Array, neighbours: int) -> Edges:
    """Each photo with the most similar ones; further pairs connect all photos with each other.

    Args:
        similarity: similarities of all pairs, `(N, N)`.
        neighbours: number of photos that each is matched with, at least.
    """
    check_count("neighbours", neighbours, minimum=1)
    scores = np.where(np.eye(len(similarity), dtype=bool), -np.inf, similarity)
    nearest = np.argsort(-scores, axis=1, kind="stable")[:, : min(neighbours, len(scores) - 1)]
    chosen = {(min(i, int(j)), max(i, int(j))) for i, row in enumerate(nearest) for j in row}
    return sorted(chosen | set(_spanning_tree(similarity)))


def _spanning_tree(similarity: Array) -> Edges:
    """The pairs of the tree that connects all photos and has the greatest similarity in sum (Kruskal)."""
    part = list(range(len(similarity)))
    tree: Edges = []
    for i, j in sorted(exhaustive_pairs(len(part)), key=lambda pair: -similarity[pair]):
        if part[i] != part[j]:
            tree.append((i, j))
            old, new = part[j], part[i]
            part = [new if p == old else p for p in part]
    return tree


@torch.inference_mode()
def photo_similarity(photos: Sequence[Photo], network: MatchingNetwork) -> Array:
    """Cosine similarities `(N, N)` of photos, by the means of the coarsest features that the network compares.

    The mean over the collection is subtracted, so that what all photos have in common does not count.
    """
    if network.coarse_side is None:
        raise InputError(f"{network.name} has no features of whole images: choose exhaustive or sequential pairs")
    side = network.coarse_side, network.coarse_side
    means = []
    for photo in photos:
        image = resize_image(to_batch([read_image(photo.path)], network), side, published=False)
        features = F.normalize(network.coarse_features(image)[-1].float(), dim=1)
        means.append(features.mean((0, 2, 3)).cpu())
    vectors = torch.stack(means).double()
    vectors = F.normalize(vectors - vectors.mean(0), dim=1)
    return np.asarray((vectors @ vectors.T).numpy())


def name_pairs(photos: Sequence[Photo], edges: Edges) -> list[Pair]:
    """Pairs of files for the pipeline; a pair's name consists of the names of both files."""
    return [Pair(photos[i].path, photos[j].path, f"{photos[i].name}+{photos[j].name}") for i, j in edges]
