"""A training step as one CUDA graph: recorded once, then replayed without the cost of thousands of launches.

The rules of a graph, which `TrainStep.compute` keeps: all it reads and writes stays at fixed addresses, nothing is read
back to the host, no value decides what runs, and no data comes from the host.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..models.graphs import warm_up
from .step import TrainStep


def record(step: TrainStep) -> Callable[[], None]:
    """Record a step with what its buffers hold now, for any later content; the training state is left as it was.

    Returns:
        What takes a step. It keeps all memory of the graph alive.
    """
    saved = [tensor.detach().clone() for tensor in step.state()]
    warm_up(step.compute)
    restore(step, saved)
    for parameter in step.parameters:
        parameter.grad = None  # gradients of the recorded step lie in the graph's own memory
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Another thread may be preparing the next batch: its calls are not the graph's, and must not spoil it.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step.compute()
    return graph.replay


@torch.no_grad()
def restore(step: TrainStep, saved: list[Tensor]) -> None:
    """Put the training state back, in place."""
    for tensor, value in zip(step.state(), saved, strict=True):
        tensor.copy_(value)
