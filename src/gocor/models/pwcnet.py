"""PWC-Net: optical flow from coarse to fine, with a local correlation at each of five levels."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops.warp import warp
from ..utils.errors import InputError
from .backbones import LearntPyramid
from .decoders import ContextNetwork, FlowDecoder, Upsampler, conv_block, initialize
from .matching_layers import LocalMatching
from .network import PUBLISHED_LOSS_WEIGHTS, MatchingNetwork
from .published_names import Rule, context_rules, gocor_rule
from .resizing import resize_image

CHANNELS = (16, 32, 64, 96, 128, 196)  # channels of the pyramid's levels 1 to 6, at 1/2 to 1/64 of the resolution
MIN_CHANNELS = 4  # least number of channels of a level, for small test networks
FLOW_SCALE = 20  # Decoders predict flow in units of 20 full-resolution pixels.
FEATURE_GAIN = 8  # Initial gain of the first convolution, so that features of images in [0, 1] have unit variance.
FLOW_GAIN = 0.1  # Initial gain of the last convolutions, so that the first flows are small.


def _pyramid_name(match: re.Match[str]) -> str:
    # A level has three convolutions in this order, except that the names of the first two are exchanged in the sixth.
    order = ("aa", "a", "b") if match[1] == "6" else ("a", "aa", "b")
    return f"pyramid.levels.{int(match[1]) - 1}.{order.index(match[2])}.{match[3]}"


def _by_level(ours: str) -> Callable[[re.Match[str]], str]:
    """Rule for parameters of one level: the published levels 6 to 2 are our entries 0 to 4."""
    return lambda match: ours.format(6 - int(match[1]), *match.groups()[1:])


PUBLISHED_RULES: tuple[Rule, ...] = (
    (r"conv(\d)(aa|a|b)\.(.*)", _pyramid_name),
    (r"conv(\d)_(\d)\.(.*)", _by_level("decoders.{}.convs.{}.{}")),
    (r"predict_flow(\d)\.(.*)", _by_level("decoders.{}.predict.{}")),
    (r"deconv(\d)\.(.*)", _by_level("upflow.{}.{}")),
    (r"upfeat(\d)\.(.*)", _by_level("upfeat.{}.{}")),
    *context_rules("dc_conv", "context"),
    *(gocor_rule(rf"local_corr_{6 - index}\.(filter_.*)", f"matching.{index}.correlation") for index in range(5)),
)


class PWCNet(MatchingNetwork):
    """PWC-Net with any local correlation layers.

    Args:
        correlations: correlation layers of levels 6 (1/64 of the resolution) to 2 (1/4).
        radius: search radius of the layers.
        width: factor of all channels, below 1 for small test networks.
        published: see `MatchingNetwork`.
    """

    has_global_layer = False
    loss_weights = (0.05, 0.1, 0.15, 0.25, 0.45)
    published_loss_weights = tuple(weight / FLOW_SCALE for weight in PUBLISHED_LOSS_WEIGHTS)
    training_defaults: ClassVar[Mapping[str, Any]] = {"size": (384, 384), "batch": 8, "steps": 50_000, "lr": 2e-4}
    published_rules = PUBLISHED_RULES

    def __init__(
        self,
        correlations: Sequence[nn.Module],
        *,
        radius: int = 4,
        width: float = 1.0,
        published: bool = False,
    ) -> None:
        super().__init__(published=published)
        if len(correlations) != 5:
            raise InputError(f"PWC-Net has five local correlation layers, got {len(correlations)}")
        window = (2 * radius + 1) ** 2
        channels = tuple(max(MIN_CHANNELS, int(width * count)) for count in CHANNELS)
        self.pyramid = LearntPyramid(_level(before, after) for before, after in pairwise((3, *channels)))
        self.matching = nn.ModuleList(LocalMatching(layer) for layer in correlations)
        inputs = [window, *(window + channels[level - 1] + 4 for level in (5, 4, 3, 2))]
        decoders = [FlowDecoder(n, norm=False, width=width) for n in inputs]
        self.decoders = nn.ModuleList(decoders)
        # The fifth upsampler is unused and frozen. It exists because published checkpoints contain it.
        self.upflow = nn.ModuleList(Upsampler(2) for _ in range(5))
        self.upflow[4].requires_grad_(False)
        self.upfeat = nn.ModuleList(Upsampler(decoder.outputs) for decoder in decoders[:4])
        self.context = ContextNetwork(decoders[-1].outputs, norm=False, width=width)
        initialize(self)
        with torch.no_grad():  # Otherwise features outweigh correlations, and plain correlations learn late.
            next(layer for layer in self.pyramid.modules() if isinstance(layer, nn.Conv2d)).weight.mul_(FEATURE_GAIN)
            for last in (*(decoder.predict for decoder in decoders), self.context.predict):
                last.weight.mul_(FLOW_GAIN)

    def round_size(self, height: int, width: int) -> tuple[int, int]:
        """Rounded up to multiples of 64."""
        return -(-height // 64) * 64, -(-width // 64) * 64

    def level_units(self, height: int, width: int) -> list[tuple[int, int]]:
        """The working size at every level."""
        return [self.round_size(height, width)] * 5

    def prepare(self, reference: Tensor, query: Tensor, size: tuple[int, int]) -> tuple[Tensor, ...]:
        """Both images at the working size, BGR in [0, 1]."""
        resize = _resize_bytes if self.published else partial(resize_image, published=False)
        return tuple(resize(image, size).flip(1) / 255 for image in (reference, query))

    def levels(
        self,
        *inputs: Tensor,
        iters_local: int | None = None,
        iters_global: int | None = None,
        count: int | None = None,
    ) -> list[Tensor]:
        """Images `(B, 3, H, W)` → flows at 1/64, 1/32, 1/16, 1/8 and 1/4, all in pixels of the full resolution."""
        if iters_global is not None:
            raise InputError("PWC-Net has no global correlation layer: iters_global must be None")
        reference, query = (self.pyramid(image)[:0:-1] for image in inputs)  # levels 6 to 2
        flows, flow, features = [], inputs[0].new_empty(0), inputs[0].new_empty(0)
        for index, (f_reference, f_query) in enumerate(zip(reference[:count], query[:count], strict=True)):
            if index == 0:
                x = self.matching[0](f_reference, f_query, iters_local)
            else:
                flow, features = self.upflow[index - 1](flow), self.upfeat[index - 1](features)
                warped = _warp_inside(f_query, flow * (FLOW_SCALE / 2 ** (6 - index)))
                volume = self.matching[index](f_reference, warped, iters_local)
                x = torch.cat([volume, f_reference, flow, features], 1)
            features, flow = self.decoders[index](x)
            flows.append(flow)
        if len(flows) == len(reference):
            flows[-1] = flow + self.context(features)
        return [FLOW_SCALE * flow for flow in flows]


def _level(before: int, after: int) -> nn.Sequential:
    """A level of the pyramid: three convolutions, the first with stride 2."""
    first = conv_block(before, after, norm=False, stride=2)
    return nn.Sequential(first, *(conv_block(after, after, norm=False) for _ in range(2)))


def _resize_bytes(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize bytes bilinearly as Pillow does in published code: first the width, then the height, both rounded."""
    for step in ((image.shape[2], size[1]), size):
        image = (resize_image(image, step, published=False) + 0.5).floor().clamp(0, 255)
    return image


def _warp_inside(features: Tensor, flow: Tensor) -> Tensor:
    """Warp features, with zeros where a bilinear sample reaches beyond the border."""
    inside = warp(torch.ones_like(features[:, :1]), flow)
    return warp(features, flow) * (inside >= 0.9999).to(features.dtype)
