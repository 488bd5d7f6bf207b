"""A training step as one CUDA graph: recorded once, then replayed without the cost of thousands of launches.

The rules of a graph, which `TrainStep.compute` keeps: all it reads and writes stays at fixed addresses, nothing is read
back to the host, no value decides what runs, and no data comes from the host. Networks make small constants by
`torch.tensor`, which is such a copy: while warming up these are collected, while recording the collected ones are used.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .step import TrainStep

WARM_UP = 3  # steps before recording: lazy initialisation, choice of algorithms, compilation of kernels


class Constants(TorchFunctionMode):
    """Within it, equal calls of `torch.tensor` give one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.tensor or any(isinstance(a, Tensor) for a in args):
            return func(*args, **(kwargs or {}))
        key = repr((args, kwargs))
        if key not in self.known:
            self.known[key] = func(*args, **(kwargs or {}))
        return self.known[key]


def record(step: TrainStep) -> Callable[[], None]:
    """Record a step with what its buffers hold now, for any later content; the training state is left as it was.

    Returns:
        What takes a step. It keeps all memory of the graph alive.
    """
    constants = Constants()
    saved = [tensor.detach().clone() for tensor in step.state()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with constants, torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step.compute()
    torch.cuda.current_stream().wait_stream(side)
    restore(step, saved)
    for parameter in step.parameters:
        parameter.grad = None  # gradients of the recorded step lie in the graph's own memory
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Another thread may be preparing the next batch: its calls are not the graph's, and must not spoil it.
    with constants, torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step.compute()

    def replay() -> None:
        graph.replay()

    replay.constants = constants  # type: ignore[attr-defined]  # the graph reads them
    return replay


@torch.no_grad()
def restore(step: TrainStep, saved: list[Tensor]) -> None:
    """Put the training state back, in place."""
    for tensor, value in zip(step.state(), saved, strict=True):
        tensor.copy_(value)
