"""Pairs per second of several worker processes on one device."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import torch

from ..pipeline.dispatch import CHUNKS_PER_WORKER, Dispatcher
from ..pipeline.job import Job
from ..pipeline.pairs import Pair
from ..pipeline.processes import ProcessCrew
from ..pipeline.run import chunk_size
from ..pipeline.stores.folder import FolderStore
from .busy import measure_busy
from .end_to_end import Speed


def measure_processes(name: str, pairs: Sequence[Pair], job: Job, device: torch.device, count: int) -> Speed:
    """Match pairs once, after each process has matched some to warm up. The time in stages is not measured."""
    with tempfile.TemporaryDirectory(prefix="gocor-bench-") as folder:
        crew = ProcessCrew(job, FolderStore(Path(folder)), [str(device)] * count)
        with closing(crew):
            list(Dispatcher(crew, job.batch).run(_again(pairs, count * CHUNKS_PER_WORKER * job.batch)))
            begin = time.perf_counter()
            with measure_busy(device) as busy:
                outcomes = list(Dispatcher(crew, chunk_size(job, crew, len(pairs))).run(pairs))
            seconds = time.perf_counter() - begin
    failed = sum(isinstance(outcome.prepared, Exception) for outcome in outcomes)
    return Speed(name, len(pairs), seconds, None, {}, failed, busy.share)


def _again(pairs: Sequence[Pair], count: int) -> Iterator[Pair]:
    """`count` pairs, repeated if need be, under other names."""
    return (replace(pair, name=f"first-{i}") for i, pair in enumerate(islice(cycle(pairs), count)))
