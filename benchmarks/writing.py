"""What a worker spends on a result beside the network: processor time of decoding and of writing, in one thread."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.report import parser, report
from gocor.bench.end_to_end import SIZES_GPU, render_pairs
from gocor.data.io import read_image
from gocor.matching import MatchResult, save_result

FORMATS = {"matches alone": (), "flo": ("flo",), "npz": ("npz",), "npz, pictures": ("npz",)}


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """Processor time of the thread, the least of some calls."""
    times = []
    for _ in range(repeats):
        begin = time.thread_time()
        call()
        times.append(time.thread_time() - begin)
    return 1e3 * min(times)


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.set_defaults(device="cpu", repeats=5)
    chosen = arguments.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (pair,) = render_pairs(folder, 1, SIZES_GPU)
        reference, query = read_image(pair.reference), read_image(pair.query)
        height, width = reference.shape[:2]
        flow = 20 * torch.rand(2, height // 16, width // 16)
        flow = torch.nn.functional.interpolate(flow[None], (height, width), mode="bilinear")[0]
        confidence = torch.rand(height, width)
        result = MatchResult(reference, query, flow, confidence, confidence < 0.1)
        rows: list[dict[str, object]] = [
            {
                "what": "decode a JPEG",
                "processor ms": milliseconds(lambda: read_image(pair.query), chosen.repeats),
                "bytes": pair.query.stat().st_size,
            }
        ]
        for what, formats in FORMATS.items():
            pictures = what.endswith("pictures")
            rows.append(
                {
                    "what": f"write {what}",
                    "processor ms": milliseconds(
                        lambda f=formats, p=pictures: save_result(result, folder / "out", formats=f, pictures=p),  # type: ignore[misc]
                        chosen.repeats,
                    ),
                    "bytes": sum(file.stat().st_size for file in (folder / "out").iterdir()),
                }
            )
    report(f"A result of {height}×{width} pixels", rows, chosen)


if __name__ == "__main__":
    main()
