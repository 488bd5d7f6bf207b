"""Two Ray workers against one on this machine: wall time, and processor time, which other programs affect less."""

import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.report import parser, report
from gocor.bench.end_to_end import render_pairs
from gocor.matching.options import MatchOptions
from gocor.pipeline.job import Job
from gocor.pipeline.pairs import Pair
from gocor.pipeline.ray_crew import RayCrew
from gocor.pipeline.run import Dispatcher, run_on
from gocor.pipeline.stores.folder import FolderStore


def measure(pairs: list[Pair], job: Job, folder: Path, workers: int, chunk: int) -> dict[str, object]:
    """Match all pairs after one chunk per worker that loads the networks."""
    store = FolderStore(folder)
    crew = RayCrew(job, store, "local", device="cpu", workers=workers)
    try:
        warm = [Pair(p.reference, p.query, f"warm{i}") for i, p in enumerate(pairs[: 2 * workers * chunk])]
        assert all(not isinstance(r.result, Exception) for r in run_on(Dispatcher(crew, chunk), warm, store))
        actors = [psutil.Process(number) for number in crew.processes()]
        before, begin = [sum(actor.cpu_times()[:2]) for actor in actors], time.perf_counter()
        mine = time.process_time()
        assert all(not isinstance(r.result, Exception) for r in run_on(Dispatcher(crew, chunk), pairs, store))
        seconds = time.perf_counter() - begin
        spent = [sum(actor.cpu_times()[:2]) - start for actor, start in zip(actors, before, strict=True)]
        return {
            "workers": workers,
            "pairs": len(pairs),
            "pairs/s": len(pairs) / seconds,
            "busiest worker, processor s": max(spent),
            "all workers, processor s": sum(spent),
            "driver, processor s": time.process_time() - mine,
        }
    finally:
        crew.close()


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--model", default="basenet-gocor")
    arguments.add_argument("--pairs", type=int, default=24)
    arguments.add_argument("--chunk", type=int, default=2)
    options = arguments.parse_args()
    job = Job(model=options.model, batch=2, matching=MatchOptions(min_size=0))
    with tempfile.TemporaryDirectory() as folder:
        pairs = render_pairs(Path(folder), options.pairs)
        rows = [measure(pairs, job, Path(folder) / f"{n}", n, options.chunk) for n in (1, 2)]
    report("Ray workers", rows, options)
    one, two = (float(str(row["busiest worker, processor s"])) for row in rows)
    print(f"processor time of the busiest worker, one over two: {one / two:.2f}")


if __name__ == "__main__":
    main()
