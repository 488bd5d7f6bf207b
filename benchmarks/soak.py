"""Soak test: many matches of varied sizes in one process. Memory must stay flat, and results must not drift.

`python -m benchmarks.soak` matches 1,000 pairs with a small network and prints memory on the way. It fails if the
process has grown between the 200th match and the last, or if the first pair, matched again at the end, gives another
result.
"""

import argparse
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import gocor
from gocor.models import create_model

MODEL = "pwcnet-gocor-tiny"
SIZES = (48, 64, 80, 96, 128, 160)
ALLOWED_GROWTH = 16.0  # MiB: allocators keep freed blocks of varied sizes


@dataclass(frozen=True)
class Soak:
    """What a soak test found.

    Attributes:
        matches: number of pairs.
        warm: resident memory after a fifth of them, in MiB.
        last: resident memory after all of them, in MiB.
        identical: whether the first pair gave the same bits at the end.
    """

    matches: int
    warm: float
    last: float
    identical: bool

    @property
    def passed(self) -> bool:
        """Whether memory is flat and nothing drifted."""
        return self.identical and self.last - self.warm <= ALLOWED_GROWTH


def resident() -> float:
    """Resident memory of this process in MiB; its peak where the system does not tell the present value."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def soak(matches: int, *, model: str = MODEL, report_every: int = 0) -> Soak:
    """Match pairs of random images of random sizes, one after the other."""
    torch.manual_seed(0)
    network, rng = create_model(model), np.random.default_rng(0)

    def pair() -> tuple[np.ndarray, np.ndarray]:
        first, second = (rng.integers(0, 256, (*rng.choice(SIZES, 2), 3), dtype=np.uint8) for _ in range(2))
        return first, second

    start = pair()
    before = gocor.match(*start, network)
    warm = resident()
    for index in range(1, matches + 1):
        gocor.match(*pair(), network)
        if index == matches // 5:
            warm = resident()
        if report_every and index % report_every == 0:
            print(f"{index} matches: {resident():.1f} MiB", flush=True)
    last, after = resident(), gocor.match(*start, network)
    names = "flow", "confidence", "occlusion"
    same = all(torch.equal(getattr(before, name), getattr(after, name)) for name in names)
    return Soak(matches, warm, last, same)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matches", type=int, default=1000)
    parser.add_argument("--model", default=MODEL)
    options = parser.parse_args()
    found = soak(options.matches, model=options.model, report_every=max(1, options.matches // 5))
    print(
        f"{found.warm:.1f} MiB after {found.matches // 5} matches, {found.last:.1f} MiB after {found.matches}; "
        f"the first pair again: {'bit-identical' if found.identical else 'DIFFERENT'}"
    )
    return 0 if found.passed else 1


if __name__ == "__main__":
    sys.exit(main())
