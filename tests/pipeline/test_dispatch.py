"""Chunks for workers that may be lost."""

from collections import deque

import pytest

from gocor.pipeline.dispatch import CHUNKS_PER_WORKER, Dispatcher, Event, WorkerLostError
from gocor.pipeline.job import Outcome
from gocor.pipeline.pairs import Pair

PAIRS = [Pair("", "", f"{i}") for i in range(20)]


class FakeCrew:
    """Workers that do one chunk per wait, in turns; one that meets a bad pair is lost, with all its chunks."""

    def __init__(self, count, bad=(), losses=()):
        self.names, self.bad, self.losses = list(range(count)), set(bad), deque(losses)
        self.chunks, self.most, self.alone = {}, 0, []

    def workers(self):
        return list(self.names)

    def submit(self, worker, chunk, pairs):
        self.chunks.setdefault(worker, deque()).append((chunk, pairs))
        self.most = max(self.most, len(self.chunks[worker]))

    def wait(self):
        worker = next(name for name in self.names if self.chunks.get(name))
        chunk, pairs = self.chunks[worker][0]
        outcomes = []
        for pair in pairs:
            if pair.name in self.bad or (self.losses and self.losses.popleft()):
                self.names.remove(worker)
                self.names.append(max(self.names, default=worker) + worker + 1)
                held = [p.name for _, some in self.chunks.pop(worker) for p in some]
                if len(held) == 1:
                    self.alone.append(held[0])
                return [Event(worker, chunk, outcomes), Event(worker, None, lost="killed")]
            outcomes.append(Outcome(pair, f"result {pair.name}"))
        self.chunks[worker].popleft()
        self.names.append(self.names.pop(0))
        return [Event(worker, chunk, outcomes, done=True)]


def check(outcomes):
    """One result of each pair."""
    assert len(outcomes) == len(PAIRS)
    assert dict(outcomes) == {pair: f"result {pair.name}" for pair in PAIRS}


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 3, 50])
def test_every_pair_has_one_outcome(count, size):
    crew = FakeCrew(count)
    outcomes = list(Dispatcher(crew, size).run(iter(PAIRS)))
    check(outcomes)
    assert crew.most <= CHUNKS_PER_WORKER


def test_pairs_of_a_lost_worker_are_done_by_others():
    crew = FakeCrew(2, losses=[False, True, False, False, False, True])
    outcomes = list(Dispatcher(crew, 4).run(PAIRS))
    check(outcomes)


def test_a_pair_that_ends_its_worker_is_found():
    crew = FakeCrew(2, bad={"3", "11"})
    outcomes = dict(Dispatcher(crew, 4).run(PAIRS))
    assert len(outcomes) == len(PAIRS)
    failed = {pair.name for pair, result in outcomes.items() if isinstance(result, WorkerLostError)}
    assert failed == {"3", "11"}
    assert sorted(crew.alone) == ["11", "11", "3", "3"]
    assert "its worker ended 3 times: killed" in str(outcomes[PAIRS[3]])


def test_workers_that_all_end_at_once():
    with pytest.raises(WorkerLostError, match="6 workers in a row ended without a result: killed"):
        list(Dispatcher(FakeCrew(2, losses=[True] * 100), 4).run(PAIRS))
