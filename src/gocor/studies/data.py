"""Synthetic pairs as a data set, for studies without data sets of their own."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ..data.datasets import Pair, PairDataset
from ..data.datasets.pair import Item
from ..data.synthetic import PhotoStore, SyntheticPairs
from ..data.synthetic.batch import PairBatch
from ..data.synthetic.sources import list_images
from ..evaluation.benchmarks import Benchmark
from ..evaluation.protocols import INSIDE
from ..utils.files import PathLike
from ..viz.drawing import picture_of

SEED = 2_000_003  # other pairs than those of training (small seeds) and of its validation


def synthetic_benchmark(
    photos: Sequence[PathLike], *, preset: str = "static", count: int = 8, size: tuple[int, int] = (240, 320)
) -> Benchmark:
    """Pairs made from photos, scored over points whose target lies in the query.

    Args:
        photos: folders, zip files or images.
        preset: how the pairs are made.
        count: number of pairs.
        size: (height, width) of the images.
    """
    store = PhotoStore(list_images([str(path) for path in photos]), device="cpu")
    batch = SyntheticPairs(store, preset=preset, size=size, seed=SEED).batch(0, count)
    pairs = [_pair(f"{preset}-{index}", batch, index) for index in range(count)]
    return Benchmark(PairDataset("synthetic", [Item(pair.name, partial(_same, pair)) for pair in pairs]), INSIDE)


def _same(pair: Pair) -> Pair:
    return pair


def _pair(name: str, batch: PairBatch, index: int) -> Pair:
    images = [picture_of(images[index]) for images in (batch.reference, batch.query)]
    known = (batch.valid | batch.occluded)[index, 0].numpy()
    flow = np.where(known[..., None], batch.flow[index].permute(1, 2, 0).numpy(), 0).astype(np.float32)
    return Pair(name, images[0], images[1], flow, known, batch.occluded[index, 0].numpy())
