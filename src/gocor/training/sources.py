"""Training pairs from photos or from data sets with flow, in batches that are prepared ahead of time."""

import warnings
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from ..data.synthetic.batch import PairBatch
from .config import TrainConfig

if TYPE_CHECKING:
    from ..data.datasets import PairDataset

VALIDATION_SEED = 1_000_003  # added to the seed of the run
PRESET_SEED = 10_007  # added for each further preset, so that the presets of a batch show different photos
HELD_OUT, MIN_HELD_OUT = 0.05, 8  # fraction and minimum number of the photos that are held out for validation
MAX_STEPS_AHEAD = 2  # steps that the host may be ahead of the GPU: it stays busy, and few batches are in memory
SOURCE_OPTIONS = ("data", "objects", "object_images", "preset", "size", "flow", "flow_root", "seed", "device")
"""Options of a run that its pairs depend on."""
T = TypeVar("T")


class PairSource(Protocol):
    """Makes the batch of any step at any time; it has no position, so a run can resume anywhere."""

    def batch(self, step: int, batch_size: int, *, rank: int = 0, world_size: int = 1) -> PairBatch:
        """The slice of a step's batch for one process. The batch has `batch_size` pairs over all processes."""
        ...


class MixedPairs:
    """Batches that take an equal share of their pairs from each of several sources.

    Pairs that cannot be shared equally come from each source in turn, step by step. So all sources are used even if a
    batch has fewer pairs than there are sources.
    """

    def __init__(self, sources: Sequence[PairSource]) -> None:
        self.sources = sources

    def batch(self, step: int, batch_size: int, *, rank: int = 0, world_size: int = 1) -> PairBatch:
        """See `PairSource.batch`."""
        count = len(self.sources)
        equal, rest = divmod(batch_size // world_size, count)
        shares = [equal + ((index - step * rest) % count < rest) for index in range(count)]
        return PairBatch.cat(
            [
                source.batch(step, share * world_size, rank=rank, world_size=world_size)
                for source, share in zip(self.sources, shares, strict=True)
                if share
            ]
        )


@dataclass(frozen=True)
class Sources:
    """Pairs to train on, pairs to validate on, and a description of both."""

    train: PairSource
    validation: PairSource
    description: str


def open_sources_and_warnings(config: TrainConfig, device: torch.device) -> tuple[Sources, list[str]]:
    """The pairs of a run, and the messages of warnings about files that cannot be read."""
    from ..data.synthetic.sources import SkippedFilesWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SkippedFilesWarning)
        sources = open_sources(config, device)
    for warning in caught:
        if not issubclass(warning.category, SkippedFilesWarning):
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    return sources, [str(w.message) for w in caught if issubclass(w.category, SkippedFilesWarning)]


def open_sources(config: TrainConfig, device: torch.device) -> Sources:
    """The pairs of a run."""
    if config.flow:
        from .flow_data import FlowPairs

        chosen, others = FlowPairs.open(
            config.flow, root=config.flow_root, size=config.size, seed=config.seed, device=device
        )
        return Sources(chosen, others, f"{len(chosen)} pairs of {', '.join(config.flow)}; {len(others)} held out")
    from ..data.synthetic import ObjectStore, PhotoStore, SyntheticPairs
    from ..data.synthetic.sources import list_images

    files = list_images(config.data)
    kept, held_out = hold_out(files)
    objects = None
    if config.objects:
        objects = ObjectStore.open(config.objects, images=config.object_images or None, device=device)
    preset = ("dynamic" if objects else "static") if config.preset == "auto" else config.preset

    def pairs(part: Sequence[Any], seed: int) -> PairSource:
        photos = PhotoStore(part, device=device)
        sources = [
            SyntheticPairs(photos, preset=name, size=config.size, seed=seed + index * PRESET_SEED, objects=objects)
            for index, name in enumerate(preset.split("+"))
        ]
        return sources[0] if len(sources) == 1 else MixedPairs(sources)

    train, validation = pairs(kept, config.seed), pairs(held_out, config.seed + VALIDATION_SEED)
    text = f"{preset} pairs of {len(kept)} photos"
    text += f" and {len(objects)} objects" if objects else ""
    return Sources(train, validation, text + f"; validation on pairs of {len(held_out)} photos")


def hold_out(files: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Files to train on, and files to validate on, evenly spaced. If there are few, all of them serve both purposes."""
    count = max(MIN_HELD_OUT, round(HELD_OUT * len(files)))
    if len(files) < 5 * count:
        return files, files
    places = {(2 * i + 1) * len(files) // (2 * count) for i in range(count)}
    return [f for i, f in enumerate(files) if i not in places], [files[i] for i in sorted(places)]


def open_datasets(entries: Sequence[str]) -> "dict[str, PairDataset]":
    """Data sets by the labels of their entries, see `parse_entry`; a repeated label gets a number."""
    from ..data.datasets.entries import parse_entries

    datasets: dict[str, PairDataset] = {}
    for entry in parse_entries(entries):
        label = entry.label
        if label in datasets:
            label += f" ({sum(other.partition(' (')[0] == label for other in datasets) + 1})"
        datasets[label] = entry.open()
    return datasets


def batches(
    source: PairSource, first: int, batch_size: int, *, rank: int, world_size: int, device: torch.device
) -> Generator[PairBatch]:
    """Batches of steps `first`, `first + 1`, … on the device. A thread makes the next one while the current is used."""
    side = torch.cuda.Stream(device) if device.type == "cuda" else None

    def make(step: int) -> tuple[PairBatch, torch.cuda.Event | None]:
        with torch.cuda.stream(side) if side is not None else nullcontext(), torch.no_grad():
            batch = source.batch(step, batch_size, rank=rank, world_size=world_size).to(device, non_blocking=True)
            return batch, side.record_event() if side is not None else None

    with ThreadPoolExecutor(1, thread_name_prefix="pairs") as pool:
        launched: deque[torch.cuda.Event] = deque()
        coming: Future[tuple[PairBatch, torch.cuda.Event | None]] = pool.submit(make, first)
        step = first
        while True:
            batch, made = coming.result()
            step += 1
            coming = pool.submit(make, step)
            if made is not None:
                current = torch.cuda.current_stream(device)
                current.wait_event(made)
                for tensor in vars(batch).values():
                    tensor.record_stream(current)  # the side stream must not reuse its memory while it is read here
            yield batch
            if side is not None:
                launched.append(torch.cuda.current_stream(device).record_event())
                if len(launched) > MAX_STEPS_AHEAD:
                    launched.popleft().synchronize()
