"""One worker: threads decode images and write results while the network matches.

Threads suffice: decoding, compression and the network's operators all release Python's global lock. All queues are
bounded, so that memory does not grow with the number of pairs.
"""

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from ..matching.api import match_pictures
from ..matching.features import FeatureCache, default_limit
from ..matching.result import MatchResult
from ..models.network import MatchingNetwork
from ..models.weights import UntrainedWarning, load_model
from ..utils.arrays import Picture
from ..utils.errors import InputError, is_out_of_memory, is_user_error
from ..utils.timing import Stages
from .buckets import Buckets, Loaded
from .images import ImageCache
from .job import Job, Note, Outcome
from .pairs import Pair
from .stores import Store

MIB = 2**20
Match = Callable[[Sequence[tuple[Picture, Picture]]], Sequence[MatchResult]]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a worker's memory.

    Attributes:
        batches_ahead: pairs that are read ahead, in batches; among them, pairs of equal sizes are matched together.
        waiting: bytes of pictures that wait for the network. Pairs that are being read are not counted.
        cached: bytes of pictures that are kept for other pairs.
        features: bytes of their features that are kept likewise, on the device; `None` for `default_limit`.
        unwritten: bytes of results that wait to be written.
        readers: threads that decode.
        writers: threads that write: half of the cores, at most eight. Compressing a flow takes longer than finding it
            does on a GPU.
    """

    batches_ahead: int = 8
    waiting: int = 512 * MIB
    cached: int = 512 * MIB
    features: int | None = None
    unwritten: int = 512 * MIB
    readers: int = 2
    writers: int = max(2, min(8, (os.cpu_count() or 1) // 2))


@dataclass
class Worker:
    """Matches pairs and hands the results to a store. Several threads may run the same worker.

    Args:
        job: how to match.
        store: prepares the results.
        match: matches pairs of pictures of equal sizes, at most `job.batch`.
        limits: bounds of the memory.
        stages: where the time of decoding, matching, alignment and writing is added up.
    """

    job: Job
    store: Store
    match: Match
    limits: Limits = Limits()
    stages: Stages = field(default_factory=Stages)

    def __post_init__(self) -> None:
        self._cache = ImageCache(self.limits.cached)
        self._one_batch = threading.Lock()

    def run(self, pairs: Iterable[Pair]) -> Generator[Outcome, None, None]:
        """Match pairs; yield the outcome of each, in the order in which they are done.

        An error that concerns one pair is its outcome. Bugs and errors while writing are raised: an error while
        writing would affect all other pairs too.
        """
        limits = self.limits
        # With a GPU, these threads compute with one core each. On a CPU, this would also bind the network's threads.
        alone = partial(torch.set_num_threads, 1) if torch.cuda.is_initialized() else None
        reading = ThreadPoolExecutor(limits.readers, "read", initializer=alone)
        writing = ThreadPoolExecutor(limits.writers, "write", initializer=alone)
        try:
            yield from _Run(self, reading, writing).go(iter(pairs))
        finally:
            reading.shutdown(wait=True, cancel_futures=True)
            writing.shutdown(wait=True, cancel_futures=True)

    def read(self, pair: Pair) -> Loaded | Exception:
        """The pair with its pictures, or the error that prevented it."""
        with self.stages.measure("decode", host=True):
            try:
                note = self.job.note(pair)  # before the files are read: a change in between makes the result outdated
                return Loaded(pair, note, self._cache.get(pair.reference), self._cache.get(pair.query))
            except Exception as error:
                return _user_error(error)

    def match_batch(self, batch: Sequence[Loaded]) -> list[MatchResult | Exception]:
        """The results of pairs of equal sizes. If they fail together, they are matched one by one."""
        try:
            with self._one_batch, self.stages.measure("match"):
                return list(self.match([(loaded.reference, loaded.query) for loaded in batch]))
        except Exception as error:
            failure = _user_error(error)
        if len(batch) == 1:
            return [failure]
        del failure  # one by one, only the faulty pair fails, and less memory is needed
        return [self.match_batch([loaded])[0] for loaded in batch]

    def write(self, pair: Pair, result: MatchResult, note: Note) -> Any:
        """What the store prepares, or an error about this result alone."""
        with self.stages.measure("write", host=True):
            try:
                return self.store.prepare(pair, result, self.job, note)
            except InputError as error:  # the format cannot hold this flow
                return error


@dataclass
class _Run:
    """The state of one `Worker.run`."""

    worker: Worker
    reading: ThreadPoolExecutor
    writing: ThreadPoolExecutor

    def __post_init__(self) -> None:
        self.buckets = Buckets(self.worker.job.batch)
        self.reads: deque[tuple[Pair, Future[Loaded | Exception]]] = deque()
        self.writes: deque[tuple[Pair, int, Future[Any]]] = deque()
        self.unwritten = 0

    def go(self, pairs: Iterator[Pair]) -> Iterator[Outcome]:
        more = True
        while more or self.reads or self.buckets.count:
            more = more and self._read_ahead(pairs)
            batch = self.buckets.take_full()
            if not batch and self.reads:
                yield from self._loaded()
                continue
            yield from self._matched(batch or self.buckets.take_oldest())
            yield from self._written(self.worker.limits.unwritten)
        yield from self._written(0)

    def _read_ahead(self, pairs: Iterator[Pair]) -> bool:
        """Start to read pairs, up to the limits; false if there are no more."""
        limits, ahead = self.worker.limits, self.worker.limits.batches_ahead * self.worker.job.batch
        while (
            len(self.reads) < max(2 * limits.readers, self.worker.job.batch)
            and len(self.reads) + self.buckets.count < ahead
            and self.buckets.bytes < limits.waiting
        ):
            pair = next(pairs, None)
            if pair is None:
                return False
            self.reads.append((pair, self.reading.submit(self.worker.read, pair)))
        return True

    def _loaded(self) -> Iterator[Outcome]:
        """Take over the pair whose reading was started first."""
        pair, future = self.reads.popleft()
        loaded = future.result()
        if isinstance(loaded, Exception):
            yield Outcome(pair, loaded)
        else:
            self.buckets.add(loaded)

    def _matched(self, batch: Sequence[Loaded]) -> Iterator[Outcome]:
        """Match a batch and start to write its results."""
        for loaded, result in zip(batch, self.worker.match_batch(batch) if batch else (), strict=True):
            if isinstance(result, Exception):
                yield Outcome(loaded.pair, result)
            else:
                size = loaded.bytes + sum(t.nbytes for t in (result.flow, result.confidence, result.occlusion))
                future = self.writing.submit(self.worker.write, loaded.pair, result, loaded.note)
                self.writes.append((loaded.pair, size, future))
                self.unwritten += size

    def _written(self, limit: int) -> Iterator[Outcome]:
        """The results that are written; waits until the others take at most `limit` bytes."""
        while self.writes and (self.unwritten > limit or self.writes[0][2].done()):
            pair, size, future = self.writes.popleft()
            self.unwritten -= size
            yield Outcome(pair, future.result())


def network_match(network: MatchingNetwork, job: Job, features: int | None = None) -> Match:
    """A network as the `match` of a worker, for one thread at a time.

    Args:
        network: a network on any device.
        job: how to match.
        features: see `Limits`.
    """
    device = next(network.parameters()).device
    cache = FeatureCache(default_limit(device) if features is None else features)

    def match(pairs: Sequence[tuple[Picture, Picture]]) -> list[MatchResult]:
        try:
            return match_pictures(pairs, network, job.matching, cache)
        except Exception:
            cache.clear()  # memory may have run out
            raise

    return match


def load_network(job: Job, device: str | torch.device, *, quiet: bool = False) -> MatchingNetwork:
    """The network of a job; `quiet` leaves out the warning about untrained ones."""
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", UntrainedWarning)
        return load_model(job.model, job.weights, device=device, fast=job.fast)


def load_worker(job: Job, store: Store, device: str | torch.device, *, quiet: bool = False) -> Worker:
    """A worker with the network of its job."""
    limits = Limits()
    match = network_match(load_network(job, device, quiet=quiet), job, limits.features)
    return Worker(job, store, match, limits)


def _user_error(error: Exception) -> Exception:
    """The error if its message helps the user; a bug is raised."""
    if not is_user_error(error):
        raise error
    # The traceback of torch's error keeps tensors in memory, so a new error replaces it.
    return MemoryError(str(error)) if is_out_of_memory(error) else error
