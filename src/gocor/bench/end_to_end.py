"""Pairs per second from image files to result files, and where the time goes, for a network and classical methods."""

import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..data.io import write_image
from ..data.synthetic import PhotoStore, SyntheticPairs
from ..evaluation.baselines import BASELINES, Matcher
from ..matching.result import MatchResult
from ..pipeline.job import Job
from ..pipeline.pairs import Pair
from ..pipeline.stores.folder import FolderStore
from ..pipeline.worker import Match, Worker, load_network, network_match
from ..utils.arrays import Picture
from ..viz.drawing import picture_of
from .busy import measure_busy
from .report import digits

CLASSICAL = {"OpenCV DIS": "dis", "SIFT + MAGSAC++": "sift-homography"}
CLASSICAL_PAIRS = 16  # largest number of pairs for classical methods, the first ones
STAGES = ("decode", "align", "match", "write")
SIZES = ((480, 640), (512, 384))  # sizes of the rendered pairs, in turns
SIZES_GPU = ((768, 1024),)
CPU = torch.device("cpu")
WARM_BATCHES_GPU = 3  # before the time is taken: kernels are compiled and graphs recorded


@dataclass(frozen=True)
class Speed:
    """Speed of one method.

    Attributes:
        method: name of the method.
        pairs: number of pairs.
        seconds: seconds from the first file that is read to the last that is written.
        processor: seconds of processor time in all threads, which other programs on the machine affect less; `None` for
            several processes.
        stages: seconds in each stage, over all threads. Stages overlap, so that their sum may exceed `seconds`.
        failed: number of pairs without a result.
        busy: share of the time in which the GPU ran a kernel; `None` if it was not measured.
    """

    method: str
    pairs: int
    seconds: float
    processor: float | None
    stages: Mapping[str, float]
    failed: int
    busy: float | None = None

    def as_json(self) -> dict[str, object]:
        """Plain data, per pair."""
        stages = {name: 1e3 * self.stages.get(name, 0.0) / self.pairs for name in STAGES}
        return {
            "method": self.method,
            "pairs": self.pairs,
            "failed": self.failed,
            "pairs_per_second": self.pairs / self.seconds,
            "processor_ms": None if self.processor is None else 1e3 * self.processor / self.pairs,
            "gpu_busy": self.busy,
            "stages_ms": stages,
        }


def measure_matching(
    pairs: Collection[Pair],
    job: Job,
    device: torch.device,
    report: Callable[[str], None] = lambda text: None,
    *,
    processes: int = 1,
) -> list[Speed]:
    """Match the same pairs by the network of a job and by each classical method, through the same pipeline.

    The network is measured without and with pictures of the results.

    Args:
        pairs: pairs to match.
        job: how the network matches, and what is written of each pair.
        device: device of the network.
        report: called with a line that says what is being measured.
        processes: number of worker processes for the network, measured in addition to this process.
    """
    from .processes import measure_processes

    network = network_match(load_network(job, device, quiet=True), job)
    jobs = {job.model: replace(job, pictures=False), f"{job.model}, pictures": replace(job, pictures=True)}
    speeds = []
    for name, chosen in jobs.items():
        report(f"{name}: {len(pairs)} pairs")
        speeds.append(measure_method(name, network, pairs, chosen, device))
        if processes > 1:
            report(f"{name}, {processes} processes: {len(pairs)} pairs")
            speeds.append(measure_processes(f"{name}, {processes} processes", list(pairs), chosen, device, processes))
    few = list(pairs)[:CLASSICAL_PAIRS]
    for shown, method in CLASSICAL.items():
        report(f"{shown}: {len(few)} pairs")
        speeds.append(measure_method(shown, classical_match(BASELINES[method]), few, jobs[job.model]))
    return speeds


def measure_method(name: str, match: Match, pairs: Collection[Pair], job: Job, device: torch.device = CPU) -> Speed:
    """Match pairs once, after first batches that warm up."""
    warm = job.batch * (WARM_BATCHES_GPU if device.type == "cuda" else 1)
    with tempfile.TemporaryDirectory(prefix="gocor-bench-") as folder:
        list(Worker(job, FolderStore(Path(folder) / "first"), match).run(list(pairs)[:warm]))
        worker = Worker(job, FolderStore(Path(folder) / "all"), match)
        with measure_busy(device) as busy:
            begin, processor = time.perf_counter(), time.process_time()
            failed = sum(isinstance(outcome.prepared, Exception) for outcome in worker.run(pairs))
            seconds, processor = time.perf_counter() - begin, time.process_time() - processor
    return Speed(name, len(pairs), seconds, processor, worker.stages.seconds, failed, busy.share)


def classical_match(matcher: Matcher) -> Match:
    """A classical method as the `match` of a worker; it knows no confidence and no occlusion."""

    def match(reference: Picture, query: Picture) -> MatchResult:
        flow = torch.from_numpy(np.ascontiguousarray(matcher(reference, query).transpose(2, 0, 1)))
        size = reference.shape[:2]
        return MatchResult(reference, query, flow, torch.ones(size), torch.zeros(size, dtype=torch.bool))

    return lambda pairs: [match(*pair) for pair in pairs]


def render_pairs(
    folder: Path, count: int, sizes: Sequence[tuple[int, int]] = SIZES, device: torch.device = CPU
) -> list[Pair]:
    """Write pairs as JPEG files, rendered from the photos that ship; their sizes take turns."""
    found = []
    with as_file(files("gocor") / "assets") as assets:
        photos = PhotoStore.open([assets], device=device)
    for number in range(count):
        source = SyntheticPairs(photos, preset="static", size=sizes[number % len(sizes)], seed=0)
        batch = source.batch(number, 1)
        paths = []
        for name, images in (("a", batch.reference), ("b", batch.query)):
            paths.append(folder / f"{number:03}{name}.jpg")
            write_image(paths[-1], picture_of(images[0]))
        found.append(Pair(paths[0], paths[1], f"{number:03}"))
    return found


def speeds_as_rich(speeds: list[Speed]) -> Table:
    """A table with a row per method."""
    shown = Table(title="Matching, files in to files out", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("")
    for column in ("pairs/s", "GPU busy\n%", "processor\nms a pair", *(f"{name}\nms a pair" for name in STAGES)):
        shown.add_column(column, justify="right")
    for speed in speeds:
        stages = [digits(1e3 * speed.stages[name] / speed.pairs if name in speed.stages else None) for name in STAGES]
        failed = f" ({speed.failed} of {speed.pairs} failed)" if speed.failed else ""
        busy = digits(None if speed.busy is None else 100 * speed.busy)
        processor = digits(None if speed.processor is None else 1e3 * speed.processor / speed.pairs)
        shown.add_row(speed.method + failed, digits(speed.pairs / speed.seconds), busy, processor, *stages)
    return shown
