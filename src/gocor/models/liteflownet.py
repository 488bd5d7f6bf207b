"""LiteFlowNet: cascaded matching, sub-pixel refinement and flow regularisation at each of five levels.

Written from the text of the paper (Hui, Tang and Loy, CVPR 2018, arXiv 1805.07036), without the tables of layers in its
supplement: the network has 5.04 million parameters, the paper states 5.37. Published weights do not fit. Its local
correlation layers can be replaced by GOCor, as the GOCor paper suggests.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.warp import warp
from ..utils.errors import InputError
from .backbones import LearntPyramid, normalize_for_vgg
from .decoders import Upsampler, conv_block, initialize, without_autocast
from .matching_layers import LocalMatching
from .network import PUBLISHED_LOSS_WEIGHTS, MatchingNetwork
from .resizing import resize_image, upsample

LEVELS = (6, 5, 4, 3, 2)  # levels of the flow, coarse to fine; level k has 1/2^(k−1) of the resolution
CHANNELS = (32, 32, 64, 96, 128, 192)  # channels of the pyramid's levels 1 to 6
EXTRA = (0, 2, 1, 1, 0, 0)  # further convolutions of each level
KERNELS = {6: 3, 5: 3, 4: 5, 3: 5, 2: 7}  # sides of the last convolution of M and S, and of R's local filters
SPARSE = (3, 2)  # levels that are matched at every second pixel, so that the search range doubles
FLOW_SCALE = 20  # Decoders predict flow in units of 20 full-resolution pixels.
FLOW_GAIN = 0.1  # Initial gain of the last convolutions, so that the first flows are small.


class LiteFlowNet(MatchingNetwork):
    """LiteFlowNet with any local correlation layers.

    Args:
        correlations: correlation layers of levels 6 (1/32 of the resolution) to 2 (1/2).
        radius: search radius of the layers; LiteFlowNet's is 3.
        width: factor of all channels, below 1 for small test networks.
        published: see `MatchingNetwork`.
    """

    has_global_layer = False
    loss_weights = (0.05, 0.1, 0.15, 0.25, 0.45)
    published_loss_weights = tuple(weight / FLOW_SCALE for weight in PUBLISHED_LOSS_WEIGHTS)
    training_defaults: ClassVar[Mapping[str, Any]] = {"size": (320, 448), "batch": 8, "steps": 50_000, "lr": 2e-4}

    def __init__(
        self,
        correlations: Sequence[nn.Module],
        *,
        radius: int = 3,
        width: float = 1.0,
        published: bool = False,
    ) -> None:
        super().__init__(published=published)
        if len(correlations) != len(LEVELS):
            raise InputError(f"LiteFlowNet has five local correlation layers, got {len(correlations)}")
        channels = [max(4, int(width * count)) for count in CHANNELS]
        inner = [max(4, int(width * count)) for count in (128, 64, 32)]
        window = (2 * radius + 1) ** 2
        self.pyramid = FeaturePyramid(channels)
        self.matching = nn.ModuleList(LocalMatching(layer) for layer in correlations)
        self.upflow = nn.ModuleList(Upsampler(2) for _ in LEVELS[1:])
        self.matchers = nn.ModuleList(FlowHead(window, inner, KERNELS[level]) for level in LEVELS)
        self.refiners = nn.ModuleList(FlowHead(2 * channels[level - 1] + 2, inner, KERNELS[level]) for level in LEVELS)
        regularizers = [FlowRegularizer(channels[level - 1], inner, KERNELS[level]) for level in LEVELS]
        self.regularizers = nn.ModuleList(regularizers)
        initialize(self)
        with torch.no_grad():
            for head in (*self.matchers, *self.refiners):
                head.predict.weight.mul_(FLOW_GAIN)
            for regularizer in regularizers:
                regularizer.start()

    def round_size(self, height: int, width: int) -> tuple[int, int]:
        """Rounded up to multiples of 32."""
        return -(-height // 32) * 32, -(-width // 32) * 32

    def level_units(self, height: int, width: int) -> list[tuple[int, int]]:
        """The working size at every level."""
        return [self.round_size(height, width)] * len(LEVELS)

    def prepare(self, reference: Tensor, query: Tensor, size: tuple[int, int]) -> tuple[Tensor, ...]:
        """Both images at the working size, with about zero mean and unit variance."""
        return tuple(
            normalize_for_vgg(resize_image(image, size, published=self.published)) for image in (reference, query)
        )

    def levels(
        self,
        *inputs: Tensor,
        iters_local: int | None = None,
        iters_global: int | None = None,
        count: int | None = None,
    ) -> list[Tensor]:
        """Images `(B, 3, H, W)` → flows at 1/32, 1/16, 1/8, 1/4 and 1/2, all in pixels of the full resolution."""
        if iters_global is not None:
            raise InputError("LiteFlowNet has no global correlation layer: iters_global must be None")
        references, queries = (self.pyramid(image)[:0:-1] for image in inputs)  # levels 6 to 2
        flows: list[Tensor] = []
        for index, level in enumerate(LEVELS[:count]):
            reference, query = references[index], queries[index]
            flow = self.upflow[index - 1](flows[-1]) if flows else None
            flow = self._match(index, level, reference, query, flow, iters_local)
            warped = warp(query, flow * scale_of(level))
            flow = flow + self.refiners[index](torch.cat([reference, warped, flow.to(reference.dtype)], 1))
            first, second = (F.interpolate(image, reference.shape[2:], mode="area") for image in inputs)
            error = brightness_error(first, second, flow * scale_of(level))
            flows.append(self.regularizers[index](flow, reference, error))
        return [FLOW_SCALE * flow for flow in flows]

    def _match(
        self, index: int, level: int, reference: Tensor, query: Tensor, flow: Tensor | None, iters: int | None
    ) -> Tensor:
        """M, descriptor matching: the flow of the coarser level, if any, and a correction from the volume."""
        if flow is not None:
            query = warp(query, flow * scale_of(level))
        step = 2 if level in SPARSE else 1
        volume = self.matching[index](reference[:, :, ::step, ::step], query[:, :, ::step, ::step], iters)
        if step > 1:
            volume = upsample(volume, reference.shape[2:])
        found: Tensor = self.matchers[index](volume)
        return found if flow is None else flow + found


class FeaturePyramid(LearntPyramid):
    """NetC: features of six levels, at 1 to 1/32 of the resolution.

    Args:
        channels: numbers of channels of levels 1 to 6.
    """

    def __init__(self, channels: Sequence[int]) -> None:
        levels = [nn.Sequential(nn.Conv2d(3, channels[0], 7, padding=3), nn.LeakyReLU(0.1))]
        for (before, after), extra in zip(pairwise(channels), EXTRA[1:], strict=True):
            first = conv_block(before, after, norm=False, stride=2)
            levels.append(nn.Sequential(first, *(conv_block(after, after, norm=False) for _ in range(extra))))
        super().__init__(levels)


class FlowHead(nn.Module):
    """Convolutions of M and S that predict a correction of the flow.

    Args:
        inputs: number of input channels.
        inner: channels of the three hidden convolutions.
        kernel: side of the last convolution.
    """

    def __init__(self, inputs: int, inner: Sequence[int], kernel: int) -> None:
        super().__init__()
        sizes = pairwise((inputs, *inner))
        self.convs = nn.Sequential(*(conv_block(before, after, norm=False) for before, after in sizes))
        self.predict = nn.Conv2d(inner[-1], 2, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, inputs, H, W)` → `(B, 2, H, W)`."""
        return without_autocast(self.predict, self.convs(x))


class FlowRegularizer(nn.Module):
    """R, feature-driven local convolution: each pixel's flow becomes a weighted mean of the flows around it.

    A convolutional network predicts a distance D to every neighbour from the features, the flow less its mean, and the
    brightness error. Weights are exp(−D²), divided by their sum.

    Args:
        features: channels of the reference features.
        inner: channels of the hidden convolutions, each of which is used twice.
        kernel: side w of the neighbourhood.
    """

    def __init__(self, features: int, inner: Sequence[int], kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        sizes = pairwise((features + 3, *(count for count in inner for _ in range(2))))
        self.convs = nn.Sequential(*(conv_block(before, after, norm=False) for before, after in sizes))
        self.distance = nn.Conv2d(inner[-1], kernel**2, 3, padding=1)

    def start(self) -> None:
        """Start from distances that are about half the neighbours' own, so that the flow is hardly smoothed."""
        offsets = torch.arange(self.kernel, device=self.distance.weight.device) - self.kernel // 2
        self.distance.weight.mul_(FLOW_GAIN)
        assert self.distance.bias is not None
        self.distance.bias.copy_(
            torch.hypot(*torch.meshgrid(offsets.float(), offsets.float(), indexing="ij")).flatten()
        )

    def forward(self, flow: Tensor, features: Tensor, error: Tensor) -> Tensor:
        """Flow `(B, 2, H, W)`, reference features `(B, C, H, W)` and brightness error `(B, 1, H, W)` → flow."""
        relative = flow - flow.mean((2, 3), keepdim=True)
        inputs = torch.cat([features, error.to(features.dtype), relative.to(features.dtype)], 1)
        distances = without_autocast(self.distance, self.convs(inputs))
        weights = (-distances.square()).softmax(1)  # (B, w², H, W)
        side = self.kernel // 2
        padded = F.pad(flow, (side, side, side, side), mode="replicate")
        around = F.unfold(padded, self.kernel).unflatten(1, (2, self.kernel**2)).unflatten(3, flow.shape[2:])
        return (weights[:, None] * around).sum(2)


def scale_of(level: int) -> float:
    """Factor from the decoders' units to pixels of a level."""
    return FLOW_SCALE / 2 ** (level - 1)


def brightness_error(reference: Tensor, query: Tensor, flow: Tensor) -> Tensor:
    """Norm over channels of the reference minus the warped query, `(B, 1, H, W)`; flow in pixels of the images."""
    return torch.linalg.vector_norm(reference - warp(query, flow), dim=1, keepdim=True)
