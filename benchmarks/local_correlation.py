"""Implementations of local correlation without Triton: milliseconds, and the speed-up of the last over the first."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.report import parser, report
from gocor.ops.correlation import matmul as local_tiled
from gocor.ops.correlation import reference as local_reference
from gocor.utils.timing import compare

try:
    from gocor.ops.correlation import numba as local_numba
except ImportError:
    local_numba = None

# Batch, channels, height, width, radius: levels of PWC-Net at 384×1280 and of GLU-Net at 520×520, and other radii.
SHAPES = [
    (1, 196, 6, 20, 4),
    (1, 128, 12, 40, 4),
    (1, 96, 24, 80, 4),
    (1, 64, 48, 160, 4),
    (1, 32, 96, 320, 4),
    (1, 64, 64, 96, 4),
    (1, 256, 32, 32, 4),
    (1, 128, 130, 130, 4),
    (16, 256, 32, 32, 4),
    (1, 64, 64, 96, 1),
    (1, 64, 64, 96, 2),
    (1, 64, 64, 96, 8),
]


def correlate_by_unfold(reference: Tensor, query: Tensor, radius: int, scale: float) -> Tensor:
    batch, channels, height, width = reference.shape
    side = 2 * radius + 1
    neighbours = F.unfold(query, side, padding=radius).view(batch, channels, side * side, height * width)
    volume = torch.einsum("bcn,bckn->bkn", scale * reference.flatten(2), neighbours)
    return volume.view(batch, side * side, height, width)


def operators(features: Tensor, volume: Tensor) -> list[tuple[str, str, Tensor]]:
    return [("corr", "correlate", features), ("adj r", "adjoint_reference", volume), ("adj q", "adjoint_query", volume)]


def main() -> None:
    arguments = parser(__doc__ or "").parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    forms = {"slices": local_reference, "tiles": local_tiled}
    if local_numba and arguments.device == "cpu":
        forms["numba"] = local_numba
    rows = []
    for batch, channels, height, width, radius in SHAPES:
        a, b = torch.randn(2, batch, channels, height, width, device=arguments.device)
        volume = torch.randn(batch, (2 * radius + 1) ** 2, height, width, device=arguments.device)
        calls = {}
        for short, name, operand in operators(a, volume):
            for form, module in forms.items():
                calls[f"{short} {form}"] = partial(getattr(module, name), operand, b, radius, 1.0)
        ms = compare(calls, arguments.device, arguments.repeats)
        row: dict[str, object] = {"B×C×H×W, R": f"{batch}×{channels}×{height}×{width}, {radius}"}
        for short, _, _ in operators(a, volume):
            row |= {f"{short} {form}": ms[f"{short} {form}"] for form in forms}
            row[f"{short} ratio"] = ms[f"{short} slices"] / ms[f"{short} {[*forms][-1]}"]
        if volume.numel() * channels < 1.5e8:  # unfold stores every neighbour of every pixel
            # Timed apart, because its temporary memory would slow the other calls down.
            call = {"unfold": partial(correlate_by_unfold, a, b, radius, 1.0)}
            row |= compare(call, arguments.device, 3)
        else:
            row["unfold"] = float("nan")
        rows.append(row)
    report("Local correlation, ms", rows, arguments)


if __name__ == "__main__":
    main()
