"""Pairs for several workers, any of which may be lost."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol

from ..utils.errors import GOCorError
from .job import Outcome
from .pairs import Pair

CHUNKS_PER_WORKER = 2  # the images of the second are read while the first is matched
TRIES_ALONE = 2  # tries of a pair alone, after its worker was lost
MAX_LOSSES = 3  # largest number of losses in a row, in addition to one per worker


class WorkerLostError(GOCorError):
    """A worker ended while it matched a pair."""


class Event(NamedTuple):
    """A report about a worker.

    Attributes:
        worker: number of the worker.
        chunk: number of the chunk, `None` if the worker was lost.
        outcomes: outcomes of pairs of this chunk.
        done: whether these are the last ones of the chunk.
        lost: reason why the worker was lost.
    """

    worker: int
    chunk: int | None
    outcomes: Sequence[Outcome] = ()
    done: bool = False
    lost: str = ""


class Crew(Protocol):
    """Workers that match chunks of pairs."""

    def workers(self) -> list[int]:
        """Numbers of the workers that take chunks. A lost one is replaced by one with a new number."""

    def submit(self, worker: int, chunk: int, pairs: Sequence[Pair]) -> None:
        """Give a chunk to a worker."""

    def wait(self) -> list[Event]:
        """The next events; blocks until there are some. An error of a worker that concerns all pairs is raised."""

    def close(self) -> None:
        """End all workers."""


@dataclass
class Chunk:
    """Pairs that one worker matches.

    Attributes:
        pairs: those without an outcome, by name.
        losses: number of workers that were lost while they matched this pair alone; `None` if no worker was lost yet
            with these pairs.
    """

    pairs: dict[str, Pair]
    losses: int | None = None


@dataclass
class Dispatcher:
    """Gives pairs to the workers of a crew, a few at a time.

    The pairs of a lost worker are matched again, each alone, so that a pair that crashes its worker is found and
    reported.

    Args:
        crew: the workers.
        size: number of pairs in a chunk.
    """

    crew: Crew
    size: int
    _again: deque[Chunk] = field(default_factory=deque)
    _chunks: dict[int, Chunk] = field(default_factory=dict)
    _assigned: dict[int, list[int]] = field(default_factory=dict)
    _number: int = 0
    _losses: int = 0

    def run(self, pairs: Iterable[Pair]) -> Generator[Outcome, None, None]:
        """Match pairs; yield the outcome of each, in the order in which they are done."""
        source = iter(pairs)
        while True:
            for worker in self.crew.workers():
                while (chunk := self._next(worker, source)) is not None:
                    self._submit(worker, chunk)
            if not self._chunks:
                return
            for event in self.crew.wait():
                yield from self._handle(event)

    def _next(self, worker: int, source: Iterator[Pair]) -> Chunk | None:
        """The next chunk of a worker; `None` if it has enough, or if there is none."""
        busy = self._assigned.get(worker, [])
        if any(self._chunks[number].losses is not None for number in busy):
            return None
        if self._again and not busy:
            return self._again.popleft()
        if self._again or len(busy) >= CHUNKS_PER_WORKER:
            return None
        pairs = {pair.name: pair for pair in islice(source, self.size)}
        return Chunk(pairs) if pairs else None

    def _submit(self, worker: int, chunk: Chunk) -> None:
        self._number += 1
        self._chunks[self._number] = chunk
        self._assigned.setdefault(worker, []).append(self._number)
        self.crew.submit(worker, self._number, list(chunk.pairs.values()))

    def _handle(self, event: Event) -> Iterator[Outcome]:
        if event.chunk is None:
            yield from self._lost(event)
            return
        chunk = self._chunks.get(event.chunk)
        if chunk is None:
            return
        for outcome in event.outcomes:
            self._losses = 0
            yield Outcome(chunk.pairs.pop(outcome.pair.name), outcome.prepared)
        if event.done:
            del self._chunks[event.chunk]
            self._assigned[event.worker].remove(event.chunk)

    def _lost(self, event: Event) -> Iterator[Outcome]:
        self._losses += 1
        if self._losses > MAX_LOSSES + len(self.crew.workers()):
            raise WorkerLostError(f"{self._losses} workers in a row ended without a result: {event.lost}")
        for number in self._assigned.pop(event.worker, []):
            chunk = self._chunks.pop(number)
            losses = 0 if chunk.losses is None else chunk.losses + 1
            for name, pair in chunk.pairs.items():
                if losses < TRIES_ALONE:
                    self._again.append(Chunk({name: pair}, losses))
                else:
                    yield Outcome(pair, WorkerLostError(f"its worker ended {TRIES_ALONE + 1} times: {event.lost}"))
