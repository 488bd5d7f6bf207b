"""Data-parallel training over the processes that `torchrun` starts; without it there is a single process.

Every process computes its slice of the batch. Losses are divided by the pixel counts of the whole batch and gradients
are summed, so all processes take the same step that a single process would take with the whole batch.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..models.weights import choose_device


@dataclass(frozen=True)
class Group:
    """The processes that train one network.

    Attributes:
        rank: index of this process.
        world_size: number of processes.
        device: device that this process computes on.
    """

    rank: int
    world_size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over the processes, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def largest(self, *values: float) -> list[float]:
        """The maximum of each value over the processes. The values are on the host, so that no GPU is waited for."""
        if self.world_size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return numbers.tolist()

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum gradients over the processes, all of them in one message."""
        if self.world_size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum_(torch.cat([g.flatten() for g in gradients]))
        pieces = flat.split([g.numel() for g in gradients])
        torch._foreach_copy_(gradients, [piece.view_as(g) for piece, g in zip(pieces, gradients, strict=True)])

    def broadcast_weights(self, network: nn.Module) -> None:
        """Give every process the weights and buffers of the first."""
        if self.world_size > 1:
            for tensor in network.state_dict().values():
                dist.broadcast(tensor, 0)


@contextmanager
def processes(device: str) -> Iterator[Group]:
    """Join the processes that torchrun's environment variables describe. Without these variables there is one."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device)
    if world_size == 1:
        yield Group(0, 1, chosen)
        return
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    if dist.is_initialized():  # by whoever started the processes, such as Ray Train
        yield Group(dist.get_rank(), dist.get_world_size(), chosen)
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Group(dist.get_rank(), world_size, chosen)
    finally:
        dist.destroy_process_group()
