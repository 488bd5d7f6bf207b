"""Global GOCor on filters and in Gram space, forward and forward + backward: which form is faster at which size."""

from functools import partial

import torch
from torch import Tensor

from benchmarks.report import parser, report
from gocor import GlobalGOCor
from gocor.utils.timing import compare

ITERS = 3
CHANNELS = (64, 128, 256, 512, 1024)
# The query term takes the same time in both forms, so that their difference vanishes on large maps.
SIDES = {False: (8, 16, 24, 32), True: (8, 16, 24)}


def forward(module: GlobalGOCor, reference: Tensor, query: Tensor) -> None:
    with torch.no_grad():
        module(reference, query)


def training(module: GlobalGOCor, reference: Tensor, query: Tensor) -> None:
    torch.autograd.grad(module(reference, query).sum(), [reference, query, *module.parameters()])


def measure(channels: int, side: int, query_objective: bool, device: str, repeats: int) -> dict[str, object]:
    """One row: both forms, forward and with backward pass, and the form that `form="auto"` selects."""
    pair = torch.nn.functional.normalize(torch.randn(2, 1, channels, side, side, device=device), dim=2)
    reference, query = (x.requires_grad_() for x in pair.unbind())
    calls = {}
    for what in (forward, training):
        for form in ("filters", "gram"):
            module = GlobalGOCor(channels, ITERS, query_objective=query_objective, form=form).to(device)
            calls[f"{what.__name__}: {form}"] = partial(what, module, reference, query)
    ms = compare(calls, device, repeats)
    return {
        "objective": "reference + query" if query_objective else "reference",
        "N": side * side,
        "D": channels,
        **ms,
        "forward: ratio": ms["forward: filters"] / ms["forward: gram"],
        "training: ratio": ms["training: filters"] / ms["training: gram"],
        "auto": GlobalGOCor(channels, query_objective=query_objective).to(device).selected_form(reference, query).name,
    }


def main() -> None:
    arguments = parser(__doc__ or "").parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    rows = [
        measure(channels, side, query_objective, arguments.device, arguments.repeats)
        for query_objective, sides in SIDES.items()
        for side in sides
        for channels in CHANNELS
    ]
    report(f"Global GOCor, {ITERS} iterations, ms", rows, arguments)


if __name__ == "__main__":
    main()
