"""Training pairs from data sets with optical flow: random crops with augmentation."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.datasets import Pair
from ..data.datasets.entries import parse_entries
from ..data.synthetic.batch import PairBatch
from ..ops.warp import inside_mask
from ..utils.errors import InputError
from ..utils.files import PathLike
from .targets import level_target

HELD_OUT = 0.05  # fraction of each data set, its last pairs, that is held out for validation
ORDER_SEED = 0  # seed of the order of held-out pairs: every run validates on the same ones
LOG_ZOOM = (-0.3, 0.6)  # range of the logarithm of the scale
LOG_STRETCH = 0.15  # largest logarithm of the ratio between the two axes' scales
COLOUR = {"brightness": 0.15, "contrast": 0.3, "saturation": 0.4, "gamma": 0.25}
INDEPENDENT = 0.2  # fraction of the colour change that is drawn for each image on its own
CYCLE = 240  # pairs after which the sequence of data sets with shares repeats
THREADS = 8


class FlowPairs:
    """Crops of pairs with dense flow. A batch depends on the seed and the step alone.

    Every pair is used once before any is used again. Pixels whose target leaves the crop of the query are marked
    occluded, like those that the data set marks.

    Args:
        pairs: pairs with dense flow.
        size: (height, width) of the crops.
        seed: seed of the order and the augmentation.
        augment: scale, stretch, place, mirror and recolour crops at random; otherwise the central crop is taken.
        device: device of the batches.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        *,
        size: tuple[int, int],
        seed: int = 0,
        augment: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        if not len(pairs):
            raise InputError("there are no pairs with flow to train on")
        self.pairs, self.size, self.seed, self.augment, self.device = pairs, size, seed, augment, device
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="flow")

    @classmethod
    def open(
        cls,
        entries: Sequence[str],
        *,
        size: tuple[int, int],
        root: PathLike | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> tuple[Self, Self]:
        """Training pairs and held-out pairs of data sets, which are given as for `parse_entry`.

        With shares, a data set gives its share of the pairs whatever its size. Without, every pair of all data sets is
        used once before any is used again.
        """
        train: list[Sequence[Pair]] = []
        held_out: list[tuple[Sequence[Pair], int]] = []
        parsed = parse_entries(entries, root)
        for entry in parsed:
            dataset = entry.open()
            last = max(1, round(HELD_OUT * len(dataset)))
            first = len(dataset) - last if len(dataset) > 1 else 0
            train.append(dataset[: max(first, 1)])
            held_out += [(dataset, i) for i in range(first, len(dataset))]
        # Shuffled, because a validation takes the first ones: they must come from all data sets and scenes.
        held_out = [held_out[i] for i in np.random.default_rng(ORDER_SEED).permutation(len(held_out))]
        shares = [entry.share for entry in parsed if entry.share is not None]
        pairs = _Mixture(train, shares, seed) if shares else _Subset([(d, i) for d in train for i in range(len(d))])
        return (
            cls(pairs, size=size, seed=seed, device=device),
            cls(_Subset(held_out), size=size, seed=seed, augment=False, device=device),
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, step: int, batch_size: int, *, rank: int = 0, world_size: int = 1) -> PairBatch:
        """The slice of a step's batch for one process. The batch has `batch_size` pairs over all processes."""
        share = batch_size // world_size
        first = step * batch_size + rank * share
        return PairBatch.cat(list(self.pool.map(self.sample, range(first, first + share)))).to(self.device)

    def sample(self, number: int) -> PairBatch:
        """The `number`-th pair of the whole run, as a batch of one on the CPU."""
        pair = self._pair(number)
        if pair.flow is None or pair.valid is None:
            raise InputError(f"{pair.name} has points in place of a flow: it can be evaluated on, not trained on")
        random = np.random.default_rng([self.seed, 2, number])
        window = self._window(pair, random)
        images = [_resized(x[window], self.size) for x in (pair.reference, pair.query)]
        flow = torch.from_numpy(np.ascontiguousarray(pair.flow[window])).permute(2, 0, 1)[None]
        known = torch.from_numpy(np.ascontiguousarray(pair.valid[window]))[None, None]
        flow, known = level_target(flow, known, self.size, self.size)
        hidden = np.zeros_like(pair.valid) if pair.occluded is None else pair.occluded
        hidden = _resized(hidden[window].astype(np.uint8), self.size, cv2.INTER_NEAREST) > 0
        occluded = torch.from_numpy(hidden)[None, None] | ~inside_mask(flow, self.size)
        tensors = [torch.from_numpy(image).permute(2, 0, 1)[None].float() for image in images]
        batch = PairBatch(tensors[0], tensors[1], flow, known & ~occluded, known & occluded)
        return _recoloured(_mirrored(batch, random), random) if self.augment else batch

    def _pair(self, number: int) -> Pair:
        if isinstance(self.pairs, _Mixture):
            return self.pairs.draw(number)
        epoch, place = divmod(number, len(self.pairs))
        return self.pairs[_place(self.seed, epoch, place, len(self.pairs)) if self.augment else place]

    def _window(self, pair: Pair, random: np.random.Generator) -> tuple[slice, slice]:
        """The window of both images that is cropped and resized."""
        room = np.minimum(pair.reference.shape[:2], pair.query.shape[:2])
        scale = np.ones(2)
        if self.augment:
            stretch = random.uniform(-LOG_STRETCH, LOG_STRETCH) / 2
            scale = np.exp(random.uniform(*LOG_ZOOM) + np.array([stretch, -stretch]))
        side = np.clip(np.rint(np.array(self.size) / scale), 1, room).astype(int)
        start = random.integers(0, room - side + 1) if self.augment else (room - side) // 2
        return slice(start[0], start[0] + side[0]), slice(start[1], start[1] + side[1])


class _Subset(Sequence[Pair]):
    """Chosen pairs of several data sets, read on access."""

    def __init__(self, places: list[tuple[Sequence[Pair], int]]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        dataset, place = self.places[index]
        return dataset[place]


class _Mixture(Sequence[Pair]):
    """Pairs of several data sets, each of which gives its share whatever its size.

    Sources follow each other in a cycle in which each has its share of the places. Within a source every pair is used
    once before any is used again.
    """

    def __init__(self, sources: list[Sequence[Pair]], shares: Sequence[float], seed: int) -> None:
        self.sources, self.seed = sources, seed
        places = np.maximum(1, np.rint(CYCLE * np.array(shares) / sum(shares))).astype(int)
        cycle = np.repeat(np.arange(len(sources)), places)
        self.cycle = np.random.default_rng([seed, 3]).permutation(cycle)
        self.places = places
        self.before = [np.cumsum(self.cycle == source) - 1 for source in range(len(sources))]

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    def __getitem__(self, index: Any) -> Any:
        return self.draw(index)

    def draw(self, number: int) -> Pair:
        """The `number`-th pair of the whole run."""
        cycle, place = divmod(number, len(self.cycle))
        source = int(self.cycle[place])
        count = len(self.sources[source])
        epoch, index = divmod(cycle * int(self.places[source]) + int(self.before[source][place]), count)
        return self.sources[source][_place([self.seed, source], epoch, index, count)]


def _place(seed: int | list[int], epoch: int, place: int, count: int) -> int:
    """Index of the pair at a place of an epoch's random order."""
    key = [*(seed if isinstance(seed, list) else [seed]), 1, epoch]
    return int(np.random.default_rng(key).permutation(count)[place])


def _resized(image: NDArray[Any], size: tuple[int, int], how: int | None = None) -> NDArray[Any]:
    """Resize an array `(H, W, …)`."""
    if image.shape[:2] == size:
        return np.ascontiguousarray(image)
    if how is None:
        how = cv2.INTER_AREA if image.shape[0] > size[0] else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(np.ascontiguousarray(image), size[::-1], interpolation=how))


def _mirrored(batch: PairBatch, random: np.random.Generator) -> PairBatch:
    """Mirror horizontally with probability 0.5 and vertically with probability 0.1."""
    for axis, channel, probability in ((3, 0, 0.5), (2, 1, 0.1)):
        if random.random() < probability:
            sign = torch.ones(1, 2, 1, 1)
            sign[:, channel] = -1
            turned = {name: tensor.flip(axis) for name, tensor in vars(batch).items()}
            batch = PairBatch(**(turned | {"flow": sign * turned["flow"]}))
    return batch


def _recoloured(batch: PairBatch, random: np.random.Generator) -> PairBatch:
    """Change brightness, contrast, saturation and gamma, mostly in the same way for both images."""
    common = {name: random.uniform(-1, 1) for name in COLOUR}
    changed = {}
    for name in ("reference", "query"):
        drawn = {key: (1 - INDEPENDENT) * common[key] + INDEPENDENT * random.uniform(-1, 1) for key in COLOUR}
        changed[name] = _recolour(getattr(batch, name), {key: COLOUR[key] * drawn[key] for key in COLOUR})
    return PairBatch(**(vars(batch) | changed))


def _recolour(image: Tensor, change: dict[str, float]) -> Tensor:
    image = (image / 255) ** float(np.exp(change["gamma"]))
    grey = image.mean(1, keepdim=True)
    image = grey + (1 + change["saturation"]) * (image - grey)
    image = (image - 0.5) * float(np.exp(change["contrast"])) + 0.5 + change["brightness"]
    return 255 * image.clamp(0, 1)
