"""Local layers at the levels of PWC-Net for 384×1280: plain correlation, and GOCor on filters, fused or on tiles."""

from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.report import parser, report
from gocor import LocalFeatureCorrelation, LocalGOCor
from gocor.utils.timing import compare

LEVELS = [(1, 196, 6, 20), (1, 128, 12, 40), (1, 96, 24, 80), (1, 64, 48, 160), (1, 32, 96, 320)]


def forward(module: nn.Module, reference: Tensor, query: Tensor) -> None:
    with torch.no_grad():
        module(reference, query)


def training(module: nn.Module, reference: Tensor, query: Tensor) -> None:
    module(reference, query).sum().backward()


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--iters", type=int, default=7)
    options = arguments.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    layers: dict[str, nn.Module] = {"plain": LocalFeatureCorrelation(), "filters": LocalGOCor(form="filters")}
    if options.device.startswith("cuda"):
        layers["fused"] = LocalGOCor(form="fused")
    else:
        layers["tiles"] = LocalGOCor()  # on tiles in the forward study; training iterates on filters
    rows = []
    for size in LEVELS:
        reference, query = (x.requires_grad_() for x in torch.randn(2, *size, device=options.device).unbind())
        calls = {}
        for name, layer in layers.items():
            layer.to(options.device)
            if isinstance(layer, LocalGOCor):
                layer.iters = options.iters
            for what in (forward, training):
                calls[f"{what.__name__}: {name}"] = partial(what, layer, reference, query)
        rows.append({"B×C×H×W": "×".join(map(str, size)), **compare(calls, options.device, options.repeats)})
    report(f"Local GOCor, {options.iters} iterations, ms", rows, options)


if __name__ == "__main__":
    main()
