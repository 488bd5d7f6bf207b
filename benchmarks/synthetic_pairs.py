"""Synthetic pairs per second by preset and size, and the time to draw their random parameters."""

import time
from functools import partial
from pathlib import Path

import torch

from benchmarks.report import parser, report
from gocor.data.synthetic import PRESETS, ObjectStore, PhotoStore, SyntheticPairs
from gocor.utils.timing import compare


def drawing(pairs: SyntheticPairs, batch: int, repeats: int) -> float:
    """Milliseconds to draw the parameters of a batch on one core."""
    begin = time.perf_counter()
    for step in range(repeats):
        pairs.draw(step, batch)
    return 1e3 * (time.perf_counter() - begin) / repeats


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("photos", type=Path, nargs="+", help="folders or zip files of photos")
    arguments.add_argument("--objects", type=Path, default=None, help="cut-outs, for presets with moving objects")
    arguments.add_argument("--presets", nargs="+", choices=list(PRESETS), default=list(PRESETS))
    arguments.add_argument("--sizes", type=int, nargs="+", default=[128, 256, 512])
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--limit", type=int, default=None, help="photos, and objects, at most")
    options = arguments.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    photos = PhotoStore.open(options.photos, device=options.device, limit=options.limit)
    objects = None
    if options.objects is not None:
        objects = ObjectStore.open(options.objects, device=options.device, limit=options.limit)
    presets = [name for name in options.presets if objects is not None or PRESETS[name].objects is None]
    rows = []
    for size in options.sizes:
        makers = {n: SyntheticPairs(photos, preset=n, size=(size, size), objects=objects) for n in presets}
        calls = {name: partial(pairs.batch, 0, options.batch) for name, pairs in makers.items()}
        times = compare(calls, options.device, options.repeats)
        for name, pairs in makers.items():
            row = {"preset": name, "size": size, "batch": options.batch, "ms a batch": times[name]}
            row["pairs/s"] = 1e3 * options.batch / times[name]
            rows.append(row | {"of which drawing, ms": drawing(pairs, options.batch, options.repeats)})
    report("Synthetic pairs", rows, options)


if __name__ == "__main__":
    main()
