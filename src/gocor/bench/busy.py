"""How busy a GPU is while a block runs."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean

import torch

PERIOD = 200  # milliseconds between two readings


class Busy:
    """Readings of a GPU's load.

    Attributes:
        share: mean share of the time in which the GPU ran a kernel, in [0, 1], by `nvidia-smi`; `None` until the block
            ends, and without a GPU or that program.
    """

    share: float | None = None


@contextmanager
def measure_busy(device: torch.device) -> Iterator[Busy]:
    """Read the load of a GPU until the block ends."""
    found = Busy()
    if device.type != "cuda":
        yield found
        return
    name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"--loop-ms={PERIOD}", f"--id={name}"]
    try:
        process = subprocess.Popen(["nvidia-smi", *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield found
        return
    try:
        yield found
    finally:
        process.terminate()
        output, _ = process.communicate()
        found.share = mean_share(output)


def mean_share(output: str) -> float | None:
    """Mean of percentages, one per line. The first is left out: it is older. `None` if there are no others."""
    values = [float(line) for line in output.split("\n") if line.strip().isdecimal()][1:]
    return mean(values) / 100 if values else None
