"""Forward passes recorded as CUDA graphs, which saves the kernel launches that dominate small batches."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor


@dataclass(frozen=True)
class Recording:
    """A CUDA graph with its input and output tensors."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Tensor


class GraphCache:
    """A cache of recordings by the shapes of the arguments; the least recently used are evicted.

    Args:
        limit: number of recordings. Each holds the memory of a forward pass.
    """

    def __init__(self, limit: int = 6) -> None:
        self.limit = limit
        self.recordings: OrderedDict[Hashable, Recording] = OrderedDict()

    def run(self, function: Callable[..., Tensor], inputs: tuple[Tensor, ...], key: Hashable) -> Tensor:
        """Return `function(*inputs)` by replaying the recording of these shapes, which the first call makes.

        Args:
            function: it must not synchronise with the device, and must depend on `inputs` and `key` alone.
            inputs: tensors on one GPU.
            key: everything else that the result depends on.
        """
        key = key, tuple((x.shape, x.dtype, x.device) for x in inputs)
        if key not in self.recordings:
            while len(self.recordings) >= self.limit:
                self.recordings.popitem(last=False)
            self.recordings[key] = _record(function, inputs)
        self.recordings.move_to_end(key)
        recording = self.recordings[key]
        for own, given in zip(recording.inputs, inputs, strict=True):
            own.copy_(given)
        recording.graph.replay()
        return recording.output.clone()


def warm_up(call: Callable[[], object]) -> None:
    """Call a function on a side stream before it is recorded, so that algorithms are chosen and kernels compiled."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)


def _record(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Recording:
    own = tuple(x.clone() for x in inputs)
    with torch.cuda.device(own[0].device):
        warm_up(partial(function, *own))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = function(*own)
    return Recording(graph, own, output)
