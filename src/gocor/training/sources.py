"""Where pairs come from: photos, or data sets with flow, and batches made ahead of time."""

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch

from ..data.synthetic.batch import PairBatch
from .config import TrainConfig

if TYPE_CHECKING:
    from ..data.datasets import PairDataset

VALIDATION_SEED = 1_000_003  # added to the run's
HELD_OUT, MIN_HELD_OUT = 0.05, 8  # share of the photos that is kept for validation, and how many at least
T = TypeVar("T")
AHEAD = 2  # steps that the host may be ahead of a GPU: enough to keep it busy, and few batches wait in memory


class PairSource(Protocol):
    """Gives the batch of any step at any time: there is no position to lose."""

    def batch(self, step: int, batch_size: int, *, rank: int = 0, world_size: int = 1) -> PairBatch:
        """The pairs of a step, `batch_size` over all processes, of which one gets its slice."""
        ...


@dataclass(frozen=True)
class Sources:
    """Pairs to train on, pairs to validate on, and what to say about them."""

    train: PairSource
    validation: PairSource
    description: str


def open_sources(config: TrainConfig, device: torch.device) -> Sources:
    """The pairs that a run asks for."""
    if config.flow:
        from .flow_data import FlowPairs

        chosen, others = FlowPairs.open(config.flow, size=config.size, seed=config.seed, device=device)
        return Sources(chosen, others, f"{len(chosen)} pairs of {', '.join(config.flow)}; {len(others)} held out")
    from ..data.synthetic import ObjectStore, PhotoStore, SyntheticPairs
    from ..data.synthetic.sources import list_images

    files = list_images(config.data)
    kept, held_out = hold_out(files)
    objects = None
    if config.objects:
        objects = ObjectStore.open(config.objects, images=config.object_images or None, device=device)
    preset = ("dynamic" if objects else "static") if config.preset == "auto" else config.preset
    train, validation = (
        SyntheticPairs(PhotoStore(part, device=device), preset=preset, size=config.size, seed=seed, objects=objects)
        for part, seed in ((kept, config.seed), (held_out, config.seed + VALIDATION_SEED))
    )
    text = f"{preset} pairs of {len(kept)} photos"
    text += f" and {len(objects)} objects" if objects else ""
    return Sources(train, validation, text + f"; validation on pairs of {len(held_out)} photos")


def hold_out(files: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Files to train on and, evenly spaced among all, to validate on; all of them for both where they are few."""
    count = max(MIN_HELD_OUT, round(HELD_OUT * len(files)))
    if len(files) < 5 * count:
        return files, files
    places = {(2 * i + 1) * len(files) // (2 * count) for i in range(count)}
    return [f for i, f in enumerate(files) if i not in places], [files[i] for i in sorted(places)]


def open_datasets(entries: Sequence[str]) -> "dict[str, PairDataset]":
    """Data sets of entries NAME=FOLDER, by name."""
    from ..data.datasets import open_dataset

    datasets = {}
    for entry in entries:
        name, equals, folder = entry.partition("=")
        if not equals:
            raise ValueError(f"a data set is given as NAME=FOLDER, got {entry!r}")
        datasets[name] = open_dataset(name, folder)
    return datasets


def batches(
    source: PairSource, first: int, batch_size: int, *, rank: int, world_size: int, device: torch.device
) -> Generator[PairBatch]:
    """Batches of steps `first`, `first + 1`, … on the device, each made by a thread while the one before is used."""
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
                    tensor.record_stream(current)  # its memory is the side stream's: not to be reused while read here
            yield batch
            if side is not None:
                launched.append(torch.cuda.current_stream(device).record_event())
                if len(launched) > AHEAD:
                    launched.popleft().synchronize()
