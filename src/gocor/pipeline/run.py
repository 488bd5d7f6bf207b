"""Run a job: on one device in this process, on several devices, or on a Ray cluster."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import compress, islice

from .dispatch import Crew, Dispatcher
from .job import Job, Report
from .pairs import Pair
from .processes import ProcessCrew
from .stores import Store
from .worker import Worker, load_network, load_worker

Closable = Store | Crew
CHECK_THREADS, CHECK_PAIRS = 8, 1024  # threads that look for finished pairs, and pairs that they check at a time
CHUNKS = 4  # least number of chunks per worker, so that all end at about the same time


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a job runs.

    Attributes:
        devices: one device (or `"auto"`) for this process, or several for as many worker processes.
        ray: address of a Ray cluster, or `"local"` to start one on this machine; `None` to do without Ray.
        workers: number of Ray workers; `None` for one per GPU of the cluster, or one per core if it has no GPU.
    """

    devices: Sequence[str] = ("auto",)
    ray: str | None = None
    workers: int | None = None


HERE = Place()


def find_unfinished(pairs: Collection[Pair], job: Job, store: Store) -> "Some":
    """The pairs that have no result of this job yet."""
    flags = bytearray()
    source = iter(pairs)
    with ThreadPoolExecutor(CHECK_THREADS) as threads:
        while some := list(islice(source, CHECK_PAIRS)):
            flags += bytes(not done for done in threads.map(lambda p: store.is_finished(p, job.note(p)), some))
    return Some(pairs, flags)


@dataclass(frozen=True)
class Some:
    """A subset of the pairs.

    Attributes:
        pairs: all pairs.
        flags: 1 for each pair of the subset, 0 for the others.
    """

    pairs: Collection[Pair]
    flags: bytearray

    @staticmethod
    def all(pairs: Collection[Pair]) -> "Some":
        """All of the pairs."""
        return Some(pairs, bytearray(b"\1" * len(pairs)))

    def __len__(self) -> int:
        return sum(self.flags)

    def __iter__(self) -> Iterator[Pair]:
        return compress(self.pairs, self.flags)

    def others(self) -> Iterator[Pair]:
        """The pairs that are not in the subset."""
        return compress(self.pairs, (not flag for flag in self.flags))


def run_job(
    pairs: Iterable[Pair], job: Job, store: Store, place: Place = HERE, *, count: int | None = None
) -> Iterator[Report]:
    """Match and save pairs. Workers start at once; the iterator yields each pair when its result is in the store.

    An error that concerns one pair is reported with it. Bugs, and errors while writing, which would affect all other
    pairs too, are raised.

    Args:
        pairs: with unique names; they are taken from the iterator when they are needed.
        job: how to match.
        store: where the results go. It is closed at the end.
        place: devices or cluster.
        count: number of pairs, which sets the size of the workers' chunks; `None` if it is not known.
    """
    store.check(job)
    if place.ray is None and len(place.devices) == 1:
        worker = load_worker(job, store, place.devices[0])
        return _closing(run_on(worker, pairs, store), store)
    load_network(job, "cpu")  # an error or a warning about the network comes once, before there are workers
    crew = _crew(job, store, place)
    return _closing(run_on(Dispatcher(crew, chunk_size(job, crew, count)), pairs, store), store, crew)


def _crew(job: Job, store: Store, place: Place) -> Crew:
    if place.ray is None:
        return ProcessCrew(job, store, place.devices)
    from .ray_crew import RayCrew

    return RayCrew(job, store, place.ray, device=place.devices[0], workers=place.workers)


def chunk_size(job: Job, crew: Crew, count: int | None) -> int:
    """Number of pairs in a chunk: eight batches, or fewer if there are not enough pairs for all workers."""
    most = 8 * job.batch
    return most if count is None else max(1, min(most, -(-count // (CHUNKS * len(crew.workers())))))


def run_on(workers: Worker | Dispatcher, pairs: Iterable[Pair], store: Store) -> Iterator[Report]:
    """Match pairs by one worker or by a crew, and commit the results as they come."""
    with closing(workers.run(pairs)) as outcomes:
        for pair, prepared in outcomes:
            yield Report(pair, prepared if isinstance(prepared, Exception) else store.commit(pair, prepared))


def _closing(reports: Iterator[Report], *used: Closable) -> Iterator[Report]:
    """The reports. At the end, or on an error, everything that was used is closed."""
    with ExitStack() as stack:
        for each in used:
            stack.callback(each.close)
        yield from reports
