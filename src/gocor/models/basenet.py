"""BaseNet: three levels at 256×256, the network of the paper's ablation (appendix D)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from .backbones import VGGPyramid, normalize_for_vgg
from .decoders import ContextNetwork, FlowDecoder, MappingDecoder, Upsampler, initialize
from .matching_layers import Activation, Filtering, GlobalMatching, LocalMatching, decode_global_volume, l2_normalize
from .network import PUBLISHED_LOSS_WEIGHTS, MatchingNetwork
from .published_names import VGG_DECODER_RULES, context_rules
from .resizing import resize_image, upsample
from .stages import Stage

SIDE = 256


class BaseNet(MatchingNetwork):
    """A global correlation at 16×16, then local ones at 32×32 and 64×64, on VGG-16 features of 256×256 images.

    Args:
        global_correlation: correlation layer of the coarsest level.
        local_correlation: correlation layer that the other two levels share.
        filtering: filtering of the global volume, see `GlobalMatching`.
        activation: non-linearity of the global volume, see `GlobalMatching`.
        radius: search radius of the local layer.
        width: factor of all channels, below 1 for small test networks.
        published: see `MatchingNetwork`.
    """

    loss_weights = (0.2, 0.3, 0.5)
    published_loss_weights = PUBLISHED_LOSS_WEIGHTS[:3]
    training_defaults: ClassVar[Mapping[str, Any]] = {"size": (256, 256), "batch": 32, "steps": 10_000, "lr": 6e-4}
    published_rules = (*VGG_DECODER_RULES, *context_rules("dc_conv", "context2"))

    def __init__(
        self,
        global_correlation: nn.Module,
        local_correlation: nn.Module,
        *,
        filtering: Filtering = "none",
        activation: Activation = "relu-l2",
        radius: int = 4,
        width: float = 1.0,
        published: bool = False,
    ) -> None:
        super().__init__(published=published)
        window = (2 * radius + 1) ** 2
        self.pyramid = VGGPyramid(width=width)
        self.global_matching = GlobalMatching(global_correlation, filtering=filtering, activation=activation)
        self.local_matching = LocalMatching(local_correlation)
        self.decoder4 = MappingDecoder((SIDE // 16) ** 2 + 2, width=width)
        self.decoder3 = FlowDecoder(window + 2, norm=True, width=width)
        self.upfeat3 = Upsampler(self.decoder3.outputs)
        self.decoder2 = FlowDecoder(window + 4, norm=True, width=width)
        self.context2 = ContextNetwork(self.decoder2.outputs, norm=True, width=width)
        initialize(self)

    def round_size(self, height: int, width: int) -> tuple[int, int]:
        """Always 256×256."""
        return SIDE, SIDE

    def level_units(self, height: int, width: int) -> list[tuple[int, int]]:
        """256×256 at every level."""
        return [(SIDE, SIDE)] * 3

    def prepare(self, reference: Tensor, query: Tensor, size: tuple[int, int]) -> tuple[Tensor, ...]:
        """Both images, resized and normalised."""
        resized = (resize_image(x, size, published=self.published) for x in (reference, query))
        return tuple(normalize_for_vgg(image) for image in resized)

    def levels(
        self,
        *inputs: Tensor,
        iters_local: int | None = None,
        iters_global: int | None = None,
        count: int | None = None,
    ) -> list[Tensor]:
        """Normalised images `(B, 3, 256, 256)` → flows at 16×16, 32×32 and 64×64, all in pixels of 256×256."""
        (reference2, reference3, reference4), (query2, query3, query4) = (self.pyramid(x, (2, 3, 4)) for x in inputs)
        flow4 = decode_global_volume(self.decoder4, self.global_matching(reference4, query4, iters_global), 16)
        if count == 1:
            return [flow4]

        up_flow = upsample(flow4, reference3.shape[2:])
        features, flow3 = self.local_matching.refine(self.decoder3, reference3, query3, up_flow, 8, iters_local)
        if count == 2:
            return [flow4, flow3]

        up_flow, more = upsample(flow3, reference2.shape[2:]), self.upfeat3(features)
        features, flow2 = self.local_matching.refine(self.decoder2, reference2, query2, up_flow, 4, iters_local, more)
        return [flow4, flow3, flow2 + self.context2(features)]

    def stages(self, *inputs: Tensor) -> list[Stage]:
        """The global layer at 16×16, and the local layer at 32×32 cells of the images."""
        (reference3, reference4), (query3, query4) = (self.pyramid(image, (3, 4)) for image in inputs)
        return [
            Stage("global", self.global_matching.correlation, l2_normalize(reference4), l2_normalize(query4)),
            Stage("local", self.local_matching.correlation, reference3, query3),
        ]
