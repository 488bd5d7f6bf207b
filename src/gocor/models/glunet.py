"""GLU-Net and Semantic-GLU-Net: a global and a local level at 256×256, then two local levels at full resolution."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.resize import resize_by_area
from ..ops.select import certain
from ..ops.warp import scale_flow
from .backbones import VGGPyramid, normalize_for_vgg
from .decoders import ContextNetwork, FlowDecoder, MappingDecoder, Upsampler, initialize
from .matching_layers import Activation, Filtering, GlobalMatching, LocalMatching, decode_global_volume, l2_normalize
from .network import PUBLISHED_LOSS_WEIGHTS, MatchingNetwork
from .published_names import VGG_DECODER_RULES, context_rules
from .resizing import resize_image, upsample
from .stages import Stage

SIDE = 256
MAX_RATIO, PUBLISHED_MAX_RATIO = 2, 3  # Ratios of resolutions beyond which extra levels refine the coarse flow.


class GLUNet(MatchingNetwork):
    """GLU-Net with any correlation layers.

    Args:
        global_correlation: correlation layer at 16×16.
        local_correlation: correlation layer that the other levels share.
        filtering: filtering of the global volume, see `GlobalMatching`.
        activation: non-linearity of the global volume, see `GlobalMatching`.
        semantic: use the features of Semantic-GLU-Net, where coarser features are concatenated at the first two levels.
        radius: search radius of the local layer.
        width: factor of all channels, below 1 for small test networks.
        published: see `MatchingNetwork`. Published code also derives the number of extra levels of large images from
            their width alone, so that tall images get too few.
    """

    min_size = 1024
    loss_weights = (0.1, 0.2, 0.3, 0.4)
    published_loss_weights = PUBLISHED_LOSS_WEIGHTS[:4]
    training_defaults: ClassVar[Mapping[str, Any]] = {"size": (384, 384), "batch": 16, "steps": 30_000, "lr": 3e-4}
    published_rules = (
        *VGG_DECODER_RULES,
        *context_rules("dc_conv", "context3"),
        *context_rules("l_dc_conv", "context1"),
    )
    coarse_side = SIDE
    can_flip = True
    suits_bfloat16 = True

    def __init__(
        self,
        global_correlation: nn.Module,
        local_correlation: nn.Module,
        *,
        filtering: Filtering = "mutual",
        activation: Activation = "relu-l2",
        semantic: bool = False,
        radius: int = 4,
        width: float = 1.0,
        published: bool = False,
    ) -> None:
        super().__init__(published=published)
        window = (2 * radius + 1) ** 2
        self.semantic = semantic
        self.pyramid = VGGPyramid(width=width, ceil_mode=semantic)
        self.global_matching = GlobalMatching(global_correlation, filtering=filtering, activation=activation)
        self.local_matching = LocalMatching(local_correlation)
        self.decoder4 = MappingDecoder((SIDE // 16) ** 2 + 2, width=width)
        self.upflow4 = Upsampler(2)
        self.decoder3 = FlowDecoder(window + 2, norm=True, width=width)
        self.context3 = ContextNetwork(self.decoder3.outputs, norm=True, width=width)
        self.decoder2 = FlowDecoder(window + 2, norm=True, width=width)
        self.upflow2 = Upsampler(2)
        self.upfeat2 = Upsampler(self.decoder2.outputs)
        self.decoder1 = FlowDecoder(window + 4, norm=True, width=width)
        self.context1 = ContextNetwork(self.decoder1.outputs, norm=True, width=width)
        initialize(self)

    def round_size(self, height: int, width: int) -> tuple[int, int]:
        """Rounded down to multiples of 8, at least 256."""
        rounded = (side if certain(side >= SIDE) else torch.sym_max(SIDE, side) for side in (height, width))
        height, width = (side if certain(side % 8 == 0) else side // 8 * 8 for side in rounded)
        return height, width

    def level_units(self, height: int, width: int) -> list[tuple[int, int]]:
        """256×256 at the first two levels, the working size at the others."""
        return [(SIDE, SIDE)] * 2 + [self.round_size(height, width)] * 2

    def prepare(self, reference: Tensor, query: Tensor, size: tuple[int, int]) -> tuple[Tensor, ...]:
        """Both images at the working size, then both at 256×256, normalised."""
        pairs = [
            resize_image(image, to, published=self.published)
            for to in (size, (SIDE, SIDE))
            for image in (reference, query)
        ]
        return tuple(normalize_for_vgg(image) for image in pairs)

    def levels(
        self,
        *inputs: Tensor,
        iters_local: int | None = None,
        iters_global: int | None = None,
        count: int | None = None,
    ) -> list[Tensor]:
        """Normalised images, `(B, 3, H, W)` twice and `(B, 3, 256, 256)` twice → flows of the four levels.

        The first two (16×16 and 32×32) are in pixels of 256×256, the last two (1/8 and 1/4) in pixels of H×W.
        """
        coarse = self._coarse_features(inputs[2]), self._coarse_features(inputs[3])
        flow4, flow3 = self._coarse_flows(*coarse, iters_local, iters_global)
        if count is not None and count <= 2:
            return [flow4, flow3][:count]
        height, width = inputs[0].shape[2:]
        (reference2, reference3), (query2, query3) = (self.pyramid(image, (2, 3)) for image in inputs[:2])
        up_flow = scale_flow(upsample(flow3, reference3.shape[2:]), width / SIDE, height / SIDE)
        up_flow = self._refine(reference3, query3, up_flow, height, width, iters_local)

        features, flow2 = self.local_matching.refine(self.decoder2, reference3, query3, up_flow, 8, iters_local)
        if count == 3:
            return [flow4, flow3, flow2]

        up_flow, more = self.upflow2(flow2), self.upfeat2(features)
        features, flow1 = self.local_matching.refine(self.decoder1, reference2, query2, up_flow, 4, iters_local, more)
        return [flow4, flow3, flow2, flow1 + self.context1(features)]

    def stages(self, *inputs: Tensor) -> list[Stage]:
        """The global layer at 16×16, and the local layer at 32×32 cells of the images."""
        (reference3, reference4), (query3, query4) = (self._coarse_features(image) for image in inputs[2:])
        return [
            Stage("global", self.global_matching.correlation, l2_normalize(reference4), l2_normalize(query4)),
            Stage("local", self.local_matching.correlation, reference3, query3),
        ]

    def forward_with_flips(self, reference: Tensor, query: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """Flow between images of which one may be mirrored, as with objects of one class (TSS).

        A sample is matched mirrored if the coarsest level prefers that in both directions: with GOCor by the larger
        sum of highest scores, with plain correlation by the smaller horizontal motion.

        Args:
            reference: see `forward`.
            query: see `forward`.
            **options: those of `forward`.

        Returns:
            Flow `(B, 2, H, W)` of the original reference, and which samples were matched mirrored, `(B,)` bool.
        """
        mirrored = (self._agreement(reference.flip(3), query, options) > self._agreement(reference, query, options)) & (
            self._agreement(query.flip(3), reference, options) > self._agreement(query, reference, options)
        )
        choose = mirrored.view(-1, 1, 1, 1)
        flow = self(torch.where(choose, reference.flip(3), reference), query, **options)
        # Pixel x of the reference is pixel W−1−x of the mirrored one, where its flow is read and starts.
        width = reference.shape[3]
        back = flow.flip(3)
        start = (width - 1) - 2 * torch.arange(width, dtype=flow.dtype, device=flow.device)
        back = torch.cat([back[:, :1] + start, back[:, 1:]], 1)
        return torch.where(choose, back, flow), mirrored

    def _agreement(self, reference: Tensor, query: Tensor, options: dict[str, Any]) -> Tensor:
        """How well the coarsest level matches two images, `(B,)`; larger is better."""
        size = (SIDE, SIDE)
        images = (resize_image(image, size, published=self.published) for image in (reference, query))
        (_, reference4), (_, query4) = (self.coarse_features(image) for image in images)
        volume = self.global_matching(reference4, query4, options.get("iters_global"))
        if self.global_matching.activation == "leaky-relu":
            return volume.amax((2, 3)).sum(1)
        return -decode_global_volume(self.decoder4, volume, 16)[:, 0].abs().mean((1, 2))

    def coarse_features(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Features of RGB images `(B, 3, 256, 256)` in [0, 255] at 32×32 and 16×16."""
        return self._coarse_features(normalize_for_vgg(image))

    def coarse_flow(self, reference: tuple[Tensor, ...], query: tuple[Tensor, ...]) -> Tensor:
        """Flow at 32×32 between two images' `coarse_features`, in pixels of 256×256."""
        return self._coarse_flows(reference, query)[1]

    def _coarse_features(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """`coarse_features` of normalised images."""
        level3, level4 = self.pyramid(image, (3, 4))
        if not self.semantic:
            return level3, level4
        level5 = F.interpolate(level4, scale_factor=0.5, mode="bilinear", align_corners=False)
        level3 = torch.cat([level3, *(upsample(x, level3.shape[2:]) for x in (level4, level5))], 1)
        return level3, torch.cat([level4, upsample(level5, level4.shape[2:])], 1)

    def _coarse_flows(
        self,
        reference: tuple[Tensor, ...],
        query: tuple[Tensor, ...],
        iters_local: int | None = None,
        iters_global: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The L-Net: coarse features → flows at 16×16 and 32×32, in pixels of 256×256."""
        (reference3, reference4), (query3, query4) = reference, query
        flow4 = decode_global_volume(self.decoder4, self.global_matching(reference4, query4, iters_global), 16)
        up_flow = self.upflow4(flow4)
        features, flow3 = self.local_matching.refine(self.decoder3, reference3, query3, up_flow, 8, iters_local)
        return flow4, flow3 + self.context3(features)

    def _extra_levels(self, height: int, width: int) -> int:
        """Number of extra levels: how often the working size is halved, rounded, to reach the largest ratio to 256.

        It is counted by comparisons, because an exported graph can state them as bounds of its sizes; `log2` it cannot.
        """
        longer = torch.sym_max(height, width) if self.fixed_side is None else self.fixed_side
        side = width if self.published else longer
        largest = SIDE * (PUBLISHED_MAX_RATIO if self.published else MAX_RATIO)
        extra = 0
        while side > largest * 2 ** (extra + 0.5):
            extra += 1
        return extra

    def _refine(
        self, reference: Tensor, query: Tensor, flow: Tensor, height: int, width: int, iters: int | None
    ) -> Tensor:
        """Refine the coarse flow of a large image by extra levels, with the decoder of the next level."""
        extra = self._extra_levels(height, width)
        for remaining in range(extra, 0, -1):
            cell = 8 * 2**remaining
            size = height // cell, width // cell
            small_reference, small_query = (resize_by_area(x, size) for x in (reference, query))
            up_flow = upsample(flow, size)
            _, flow = self.local_matching.refine(self.decoder2, small_reference, small_query, up_flow, cell, iters)
        return upsample(flow, reference.shape[2:]) if extra else flow
