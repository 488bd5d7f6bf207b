"""Kill, starve and confuse training, matching and evaluation; their results must be those of undisturbed runs.

python -m tests.chaos [--kills N] [--rounds N] [--seed N] [--jobs NAME …]
"""

import argparse
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

from gocor.models.weights import UntrainedWarning


def main() -> None:
    """Run the trials; any that fails ends the program with its traceback."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=120, help="SIGKILLs that must take effect, over all jobs")
    parser.add_argument("--rounds", type=int, default=5, help="trials of every other kind, for each job")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments")
    parser.add_argument("--jobs", nargs="+", default=["train", "match", "eval"], help="jobs to disturb")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UntrainedWarning)
    _import_everything()
    from .jobs import make_jobs
    from .trials import Chaos, can_mount

    rng, begin = random.Random(options.seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gocor-chaos-") as name:
        folder = Path(name)
        (folder / "inputs").mkdir()
        (folder / "mount").mkdir()
        disks = can_mount(folder / "mount")
        jobs = [job for job in make_jobs(folder / "inputs") if job.name in options.jobs]
        for number, job in enumerate(jobs, 1):
            chaos = Chaos(job, folder, rng)
            wanted, killed = options.kills * number // len(jobs) - options.kills * (number - 1) // len(jobs), 0
            while killed < wanted:
                killed += chaos.kill(rng.randint(1, 4))
            for _ in range(options.rounds):
                chaos.jump()
                chaos.two_at_once()
                chaos.fill_files()
                if disks:
                    chaos.fill_disk()
                    chaos.read_only()
            print(job.name, ", ".join(f"{count} {kind}" for kind, count in chaos.counts.items()), flush=True)
    if not disks:
        print("no full disk and no read-only folder: only the superuser can mount them")
    print(f"all results are those of undisturbed runs; nothing was left behind ({time.monotonic() - begin:.0f} s)")


def _import_everything() -> None:
    """Import what the commands import, so that forked processes start at once."""
    import gocor.cli.batch
    import gocor.evaluation.plots
    import gocor.evaluation.runner
    import gocor.evaluation.studies
    import gocor.training.loop  # noqa: F401
    from gocor.training.logs import RunLog

    with tempfile.TemporaryDirectory() as folder:
        RunLog(Path(folder), step=0, total=1, quiet=True).close()


if __name__ == "__main__":
    if not hasattr(__import__("os"), "fork"):
        sys.exit("the trials need fork, which this system does not have")
    main()
