"""Read thousands of damaged files of every format: `make fuzz`, or `python -m tests.fuzz --cases 1000 --seed 1`.

Each case must be read, or be refused with one line. Exits with code 1 if any ends in a traceback, hangs, crashes,
exceeds the memory, runs code of a file, leaves a file behind, or prints something on stderr.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from .worker import FAILURES, work

SECONDS = 30.0  # for one case; the first one of a worker also waits for imports
START = 120.0
BAD = (*FAILURES, "hang", "crash")


def fuzz(cases: int, seed: int, *, first: int = 0, verbose: bool = True) -> tuple[Counter[str], list[str]]:
    """Run cases in worker processes; returns how often each outcome came, and a text about each failure."""
    context = multiprocessing.get_context("spawn")
    counts: Counter[str] = Counter()
    failures: list[str] = []
    last = first + cases
    while first < last:
        receiver, sender = context.Pipe(duplex=False)
        folder = tempfile.TemporaryDirectory(prefix="gocor-fuzz-")  # not the worker's, which may be killed
        worker = context.Process(target=work, args=(sender, Path(folder.name), seed, first, last), daemon=True)
        worker.start()
        sender.close()
        number, name, patience = first, "", START
        while first < last:
            try:
                if not receiver.poll(patience):
                    outcome, detail = "hang", f"no answer within {patience:g} s"
                else:
                    number, name, outcome, detail = receiver.recv()
            except EOFError:
                outcome, detail = "crash", "the process ended"
            patience = SECONDS
            if not outcome:  # the case has begun
                continue
            counts[outcome] += 1
            first = number + 1
            if outcome in BAD:
                failures.append(f"{outcome} in case {number} ({name}): {detail}")
                if verbose:
                    print(failures[-1], flush=True)
            if outcome in ("hang", "crash"):
                break
        worker.kill()
        worker.join()
        receiver.close()
        folder.cleanup()
    return counts, failures


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=12_000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to repeat one")
    options = parser.parse_args()
    start = time.monotonic()
    counts, failures = fuzz(options.cases, options.seed, first=options.first)
    seconds = time.monotonic() - start
    print(f"{sum(counts.values())} cases in {seconds:.0f} s: {counts['read']} read, {counts['refused']} refused")
    print(", ".join(f"{counts[name]} {name}" for name in BAD))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
