"""A training step as a CUDA graph: recorded once, then replayed without the cost of thousands of kernel launches.

`TrainStep.compute` keeps the rules of a CUDA graph: its tensors stay at fixed addresses, no value is copied to or from
the host, and no value decides which kernels run.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..models.graphs import warm_up
from .step import TrainStep


def record(step: TrainStep) -> Callable[[], None]:
    """Record a training step without changing the training state.

    Returns:
        A function that takes a step with the current content of the step's buffers. It keeps the graph's memory alive.
    """
    saved = [tensor.detach().clone() for tensor in step.state()]
    warm_up(step.compute)
    restore(step, saved)
    for parameter in step.parameters:
        parameter.grad = None  # the graph allocates gradients in its own memory
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # A thread may be preparing the next batch meanwhile; its CUDA calls must not invalidate the recording.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step.compute()
    return graph.replay


@torch.no_grad()
def restore(step: TrainStep, saved: list[Tensor]) -> None:
    """Write saved values back into the tensors of `step.state()`."""
    for tensor, value in zip(step.state(), saved, strict=True):
        tensor.copy_(value)
