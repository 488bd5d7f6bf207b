"""Pieces of work to measure, as plain data that can be sent to another process and built there."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..models.network import MatchingNetwork
from ..models.weights import UntrainedWarning, load_model
from ..modules import LocalFeatureCorrelation, LocalGOCor
from ..utils.precision import fast_math

Kind = Literal["network", "layer", "training"]


@dataclass(frozen=True)
class Work:
    """A piece of work to measure.

    Attributes:
        kind: `"network"` is a network from image tensors to flow, and to confidence if it learns one; `"layer"` is a
            local correlation layer; `"training"` is the forward pass of a network, a loss and the backward pass, with
            TF32 on a GPU.
        name: name of the network, or `"plain"` or `"gocor"` for a layer.
        size: (height, width) of the images or of the layer's features.
        batch: number of pairs.
        iters_local: iterations of local GOCor, `None` for the layers' own number.
        iters_global: iterations of global GOCor, likewise.
        updates: updates of a recurrent network, `None` for its own number.
        options: options in which a network differs from the registered one, as pairs of name and value.
        channels: channels of a layer's features.
        radius: radius of a layer.
        backward: include a layer's backward pass, for both feature maps and all parameters.
        dtype: `"float32"`, or a 16-bit dtype: of autocast for networks, of the features for layers.
        recorded: replay a CUDA graph, see `MatchingNetwork.accelerate`. Without a GPU it has no effect.
    """

    kind: Kind
    name: str
    size: tuple[int, int]
    batch: int = 1
    iters_local: int | None = None
    iters_global: int | None = None
    updates: int | None = None
    options: tuple[tuple[str, Any], ...] = ()
    channels: int = 0
    radius: int = 4
    backward: bool = False
    dtype: str = "float32"
    recorded: bool = False

    def build(self, device: torch.device) -> Callable[[], object]:
        """Create the network or layer and its inputs on a device. The function that is returned does the work once."""
        build = {"network": self._network, "layer": self._layer, "training": self._training}[self.kind]
        return build(device, torch.Generator().manual_seed(0))

    def _load(self, device: torch.device) -> MatchingNetwork:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UntrainedWarning)  # untrained networks are as fast as trained ones
            dtype = getattr(torch, self.dtype)
            network = load_model(self.name, None, options=dict(self.options), device=device, dtype=dtype)
        return network.accelerate(getattr(torch, self.dtype)) if self.recorded else network

    def _images(self, device: torch.device, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        reference, query = 255 * torch.rand(2, self.batch, 3, *self.size, generator=generator)
        return reference.to(device), query.to(device)

    def _iters(self) -> dict[str, int | None]:
        return {"iters_local": self.iters_local, "iters_global": self.iters_global}

    def _network(self, device: torch.device, generator: torch.Generator) -> Callable[[], object]:
        network = self._load(device)
        reference, query = self._images(device, generator)
        options = self._iters() | {"updates": self.updates, "min_size": 0}  # 0: images are not enlarged

        def forward() -> object:
            match = network.predict if network.learns_confidence else network
            with torch.inference_mode():
                return match(reference, query, **options)

        return forward

    def _layer(self, device: torch.device, generator: torch.Generator) -> Callable[[], object]:
        kinds = {"plain": LocalFeatureCorrelation, "gocor": LocalGOCor}
        layer = kinds[self.name](self.radius).to(device)
        shape, dtype = (self.batch, self.channels, *self.size), getattr(torch, self.dtype)
        reference, query = (torch.randn(shape, generator=generator).to(device, dtype) for _ in range(2))
        if not self.backward:

            def forward() -> Tensor:
                with torch.inference_mode():
                    return layer(reference, query, self.iters_local)

            return forward
        inputs = [x.requires_grad_() for x in (reference, query)] + list(layer.parameters())
        weight = torch.randn(self.batch, (2 * self.radius + 1) ** 2, *self.size, generator=generator).to(device, dtype)
        return lambda: torch.autograd.grad(layer(reference, query, self.iters_local), inputs, weight)

    def _training(self, device: torch.device, generator: torch.Generator) -> Callable[[], object]:
        network = self._load(device).train()
        reference, query = self._images(device, generator)
        images = network.prepare(reference, query, network.working_size(*self.size))
        parameters = [p for p in network.parameters() if p.requires_grad]
        if self.recorded:
            images = tuple(image.contiguous(memory_format=torch.channels_last) for image in images)
        dtype = network.autocast_dtype

        def step(*images: Tensor) -> Tensor:
            for parameter in parameters:
                parameter.grad = None
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                flows = network.levels(*images, **self._iters())
            error = end_point_errors(flows)
            error.backward()
            return error.detach()

        graphs = network.graphs

        def work() -> object:
            with fast_math(device, tf32=True):  # as in `gocor train`
                return step(*images) if graphs is None else graphs.run(step, images, None)

        return work


def end_point_errors(flows: list[Tensor]) -> Tensor:
    """A loss as costly as that of training: the levels' mean end-point errors towards the flow (1, 1), summed."""
    return sum((torch.linalg.vector_norm(flow.float() - 1, dim=1).mean() for flow in flows), flows[0].new_zeros(()))
