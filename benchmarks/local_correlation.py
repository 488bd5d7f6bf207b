"""The plain-torch forms of local correlation against each other, milliseconds and ratio to the slice loop."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.report import parser, report
from gocor.bench.timing import compare
from gocor.ops import local_reference, local_tiled

# The five levels of PWC-Net at 384×1280, GLU-Net's at 520×520, and smaller and larger windows.
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
    rows = []
    for batch, channels, height, width, radius in SHAPES:
        a, b = torch.randn(2, batch, channels, height, width, device=arguments.device)
        volume = torch.randn(batch, (2 * radius + 1) ** 2, height, width, device=arguments.device)
        calls = {}
        for short, name, operand in operators(a, volume):
            calls[f"{short} slices"] = partial(getattr(local_reference, name), operand, b, radius, 1.0)
            calls[f"{short} tiles"] = partial(getattr(local_tiled, name), operand, b, radius, 1.0)
        ms = compare(calls, arguments.device, arguments.repeats)
        row: dict[str, object] = {"B×C×H×W, R": f"{batch}×{channels}×{height}×{width}, {radius}"}
        for short, _, _ in operators(a, volume):
            slices, tiles = ms[f"{short} slices"], ms[f"{short} tiles"]
            row |= {f"{short} slices": slices, f"{short} tiles": tiles, f"{short} ratio": slices / tiles}
        if volume.numel() * channels < 1.5e8:  # unfold holds every neighbour of every pixel
            # Timed apart: its temporary memory would slow its neighbours down.
            call = {"unfold": partial(correlate_by_unfold, a, b, radius, 1.0)}
            row |= compare(call, arguments.device, 3)
        else:
            row["unfold"] = float("nan")
        rows.append(row)
    report("Local correlation, ms", rows, arguments)


if __name__ == "__main__":
    main()
