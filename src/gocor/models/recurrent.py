"""A recurrent matching network on GOCor filters.

The reference objective of GOCor depends on the reference alone, so the filters are optimised once. A recurrent unit
(RAFT, Teed and Deng, ECCV 2020) then correlates them with the query repeatedly, at several scales, around its current
estimate of the matches. It starts from a global matching of coarse features, which finds rotated, zoomed and distant
matches. With the option `fine`, the last updates work at a quarter of the resolution, which resolves thin structures
and edges.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..modules import GlobalGOCor, LocalGOCor
from ..ops import global_correlation, pool_pyramid
from ..ops.correlation.lookups import repeated_lookup
from ..ops.select import can_stop_early
from ..ops.warp import resize_flow
from ..utils.errors import InputError
from .backbones import VGGPyramid, normalize_for_vgg
from .network import MatchingNetwork, autocast
from .outputs import ImageFeatures, Outputs, Prediction
from .recurrent_blocks import (
    STRIDE,
    ConvexUpsampler,
    FeatureHead,
    Features,
    UpdateBlock,
    expected_flow,
    lookup_operand,
    pooled,
    round_side,
    unit_norm,
)
from .recurrent_fine import FineStage
from .recurrent_updates import iterate, mean_motion
from .resizing import full_resolution, resize_image, upsample
from .stages import Stage

TEMPERATURE = 20.0  # factor of the global scores in their softmax, at the start of training
COARSE_UPDATES = 6  # updates of a coarse match
DISCOUNT = 0.85  # ratio of the loss weights of an update and the one after it
Finest = tuple[Tensor, Tensor, Tensor | None]  # flow at full resolution, last states at 1/8 and at 1/4, if any


class RecurrentNet(MatchingNetwork):
    """VGG-16 features, filters, a global start, and recurrent updates at 1/8 of the resolution, optionally also at 1/4.

    Args:
        filters: layer that optimises the reference features into filters, a `LocalGOCor`; `None` looks the features up
            themselves, as RAFT does.
        start: layer whose volume gives the initial flow, a `GlobalGOCor`; `None` for plain correlation.
        fine: whether the last updates work at 1/4.
        fine_filters: as `filters`, for the features at 1/4.
        channels: channels of the matching features.
        hidden: channels of the recurrent state.
        radius: search radius of a lookup, in pixels of each scale.
        scales: number of scales of a lookup.
        width: factor of VGG-16's channels, below 1 for small test networks.
    """

    pyramid: VGGPyramid
    min_size = 1024
    min_area = 3 / 4  # of an image of 4:3
    updates: int = 12
    fast_updates = 6
    learns_confidence = True
    suits_bfloat16 = True
    reuses_features = True
    takes_start = True
    training_updates = 6
    fine_updates = 3  # with the fine stage
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "size": (352, 480),
        "batch": 12,
        "steps": 100_000,
        "lr": 4e-4,
        "clip": 1.0,
        "robust_exponent": (0.8,),
        "robust_epsilon": 0.05,
        "weight_decay": 1e-5,
    }
    coarse_side = 256
    added_parts = ("fine",)
    learning_rate_factors: ClassVar[Mapping[str, float]] = {"pyramid.": 0.1}

    def __init__(
        self,
        filters: LocalGOCor | None,
        start: GlobalGOCor | None,
        *,
        fine: bool = False,
        fine_filters: LocalGOCor | None = None,
        channels: int = 128,
        hidden: int = 128,
        radius: int = 4,
        scales: int = 4,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        self.radius, self.scales, self.hidden = radius, scales, hidden
        pyramid = VGGPyramid(width=width)
        for level in (pyramid.level_3, pyramid.level_4):
            level.requires_grad_(True)
        self.pyramid, inputs = pyramid, pyramid.channels[2:]
        self.matching_head = FeatureHead(inputs, channels)
        self.context_head = FeatureHead(inputs, 2 * hidden)
        self.filters, self.start = filters, start
        self.log_temperature = nn.Parameter(torch.tensor(TEMPERATURE).log())
        self.update = UpdateBlock(scales * (2 * radius + 1) ** 2, hidden)
        self.upsampler = ConvexUpsampler(hidden)
        self.confidence_head = nn.Sequential(
            nn.Conv2d(hidden, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, 2, 3, padding=1)
        )
        self.fine = FineStage(fine_filters, inputs, hidden, channels // 2) if fine else None

    @property
    def loss_weights(self) -> tuple[float, ...]:  # type: ignore[override]
        """Weights of the initial flow and of every update; later updates weigh more."""
        count = self.training_updates + (self.fine_updates if self.fine else 0)
        updates = [DISCOUNT ** (count - 1 - i) for i in range(count)]
        return (0.25 * updates[0], *updates)

    def round_size(self, height: int, width: int) -> tuple[int, int]:
        """Multiples of 16."""
        return round_side(height), round_side(width)

    def level_units(self, height: int, width: int) -> list[tuple[int, int]]:
        """The working size, for the initial flow and for every update."""
        return [self.round_size(height, width)] * len(self.loss_weights)

    def prepare(self, reference: Tensor, query: Tensor, size: tuple[int, int]) -> tuple[Tensor, ...]:
        """Both images at the working size, normalised."""
        return tuple(normalize_for_vgg(resize_image(image, size, published=False)) for image in (reference, query))

    def levels(
        self,
        *inputs: Tensor,
        iters_local: int | None = None,
        iters_global: int | None = None,
        count: int | None = None,
    ) -> list[Tensor]:
        """Normalised images `(B, 3, H, W)` → flows at full resolution: the initial one, and one after each update."""
        return self.outputs(*inputs, iters_local=iters_local, iters_global=iters_global).flows[:count]

    def outputs(self, *inputs: Tensor, count: int | None = None, **iters: Any) -> Outputs:
        """The flows of `levels`, and the logits of the confidence of the last one."""
        updates = self.training_updates if self.training else self.updates
        own, other = self._encoded(*inputs)
        coarse = self._match(own, other, updates, **iters)[:count]
        flows = [self.upsampler(hidden, flow) for hidden, flow in coarse]
        state = coarse[-1][0]
        left = 0 if self.fine is None else self.fine_updates if count is None else count - len(coarse)
        if self.fine is None or left <= 0:
            return Outputs(flows, self._confidence(state))
        fine = self._refine(self.fine, own, other, state, flows[-1], iters.get("iters_local"))[:left]
        flows += [self.fine.upsampler(hidden, flow) for hidden, flow in fine]
        return Outputs(flows, self._confidence(state, fine[-1][0]))

    def finest_flow(self, *inputs: Tensor, **options: Any) -> Tensor:
        """The flow after the last update; earlier ones are not upsampled."""
        return self._finest(*self._encoded(*inputs), **options)[0]

    def finest_outputs(self, *inputs: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """The flow of `finest_flow`, and the logits of its confidence and of the pixels' visibility."""
        flow, state, hidden = self._finest(*self._encoded(*inputs), **options)
        return flow, self._confidence(state, hidden)

    def _finest(self, own: Features, other: Features, *, updates: int | None = None, **options: Any) -> Finest:
        """What the last update finds."""
        settle = self.fixed_side is None and can_stop_early(own.coarse)
        state, flow = self._match(own, other, updates or self.updates, settle=settle, **options)[-1]
        flow = self.upsampler(state, flow)
        if self.fine is None:
            return flow, state, None
        hidden, flow = self._refine(self.fine, own, other, state, flow, options.get("iters_local"))[-1]
        return self.fine.upsampler(hidden, flow), state, hidden

    def _confidence(self, state: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Logits of the probabilities that the flow is right and that the query shows the pixel: `(B, 2, H, W)`.

        Args:
            state: the last one at 1/8.
            hidden: the last one at 1/4, if any.
        """
        logits = self.confidence_head(state).float()
        if self.fine is not None and hidden is not None:
            return self.fine.confidence(hidden, logits)
        return F.interpolate(logits, scale_factor=STRIDE, mode="bilinear", align_corners=False)

    def _encoded(self, reference: Tensor, query: Tensor) -> tuple[Features, Features]:
        """Features of both images. Those of the query have no context."""
        levels, count = self.pyramid.before_pooling(torch.cat([reference, query]), (2, 3, 4)), reference.shape[0]
        own = [level[:count] for level in levels]  # `chunk` would fix the batch size of an exported graph
        matching, context = unit_norm(self.matching_head(levels)), self.context_head(own)
        if self.fine is None:
            return Features(matching[:count], context), Features(matching[count:])
        fine = self.fine.encode(levels)
        reference_features = Features(matching[:count], context, fine[:count], self.fine.context_head(own))
        return reference_features, Features(matching[count:], None, fine[count:])

    def _match(
        self,
        reference: Features,
        query: Features,
        updates: int,
        iters_local: int | None = None,
        iters_global: int | None = None,
        settle: bool = False,
        start: Tensor | None = None,
    ) -> list[tuple[Tensor, Tensor]]:
        """Hidden states and flows at 1/8, in pixels of 1/8: the initial ones, and those after each update.

        With `settle`, a sample is no longer updated once its flow hardly moves, and updates end when all have settled.
        The initial flow is `start`, or a global match.
        """
        assert reference.context is not None
        own, other = reference.coarse, query.coarse
        hidden, context = reference.context.split([self.hidden, self.hidden], 1)
        hidden, update = hidden.tanh(), self.update.given(context.relu())
        filters = own if self.filters is None else self.filters.filters(own, iters_local)
        look_up = repeated_lookup(filters, pool_pyramid(lookup_operand(other), self.scales), self.radius)
        flow = self._start_flow(own, other, iters_global) if start is None else start

        def motion(hidden: Tensor, change: Tensor) -> Tensor:
            return mean_motion(STRIDE * change, self.confidence_head(hidden)[:, :1].float().sigmoid())

        found = iterate(update, look_up, hidden, flow, updates, motion if settle else None)
        return [(hidden, flow), *found]

    def _refine(
        self, fine: FineStage, own: Features, other: Features, state: Tensor, flow: Tensor, iters: int | None
    ) -> list[tuple[Tensor, Tensor]]:
        """Hidden states and flows at 1/4 after each fine update, from the state at 1/8 and the flow of the image."""
        assert own.fine is not None
        assert other.fine is not None
        assert own.fine_context is not None
        features = own.fine, other.fine, own.fine_context
        return fine(*features, state, flow.detach(), self.fine_updates, iters)

    def stages(self, *inputs: Tensor) -> list[Stage]:
        """The global layer that gives the initial flow, and the local layer whose filters are looked up."""
        levels = self.pyramid.before_pooling(torch.cat(inputs), (2, 3, 4))
        reference, query = unit_norm(self.matching_head(levels)).chunk(2)
        return [
            Stage("global", self.start, *pooled(reference, query, self.fixed_side)),
            Stage("local", self.filters, reference, query),
        ]

    def features(self, image: Tensor, *, min_size: int | None = None, max_size: int | None = None) -> ImageFeatures:
        """Matching features and context of images `(B, 3, H, W)`, at 1/8 and 1/4 of the working size."""
        own = image.shape[2], image.shape[3]
        size = self.working_size(*own, min_size=self.min_size if min_size is None else min_size, max_size=max_size)
        with autocast(image.device, self.autocast_dtype):
            image = normalize_for_vgg(resize_image(image, size, published=False))
            levels = self.pyramid.before_pooling(image, (2, 3, 4))
            matching, context = unit_norm(self.matching_head(levels)), self.context_head(levels)
            fine = () if self.fine is None else (self.fine.encode(levels), self.fine.context_head(levels))
            return ImageFeatures((matching, context, *fine), own, size)

    def match_features(self, reference: ImageFeatures, query: ImageFeatures, **options: Any) -> Prediction:
        """See `MatchingNetwork.match_features`."""
        if reference.working_size != query.working_size:
            sizes = f"{reference.working_size} and {query.working_size}"
            raise InputError(f"features of reference and query must have one working size, got {sizes}")
        own, other = (Features(*image.tensors) for image in (reference, query))
        size = own.coarse.shape[2:]
        if (start := options.pop("start", None)) is not None:
            start = resize_flow(start.float(), size, query_size=query.image_size, new_query_size=size)
        with autocast(own.coarse.device, self.autocast_dtype):
            flow, state, hidden = self._finest(own, other, start=start, **options)
            logits = self._confidence(state, hidden)
        flow = full_resolution(flow, reference.working_size, reference.image_size, query.image_size)
        confidence, visibility = upsample(logits.float(), reference.image_size).sigmoid().split(1, 1)
        return Prediction(flow, confidence, visibility)

    def coarse_features(self, image: Tensor) -> tuple[Tensor, ...]:
        """Matching features and context of RGB images `(B, 3, 256, 256)` at 32×32, and VGG-16 features at 16×16."""
        with autocast(image.device, self.autocast_dtype):
            levels = self.pyramid.before_pooling(normalize_for_vgg(image), (2, 3, 4))
            return unit_norm(self.matching_head(levels)), self.context_head(levels), F.max_pool2d(levels[-1], 2)

    def coarse_flow(self, reference: tuple[Tensor, ...], query: tuple[Tensor, ...]) -> Tensor:
        """Flow at 32×32 between two images' `coarse_features`, in pixels of 256×256."""
        own, other = (Features(*image[:2]) for image in (reference, query))
        with autocast(own.coarse.device, self.autocast_dtype):
            return STRIDE * self._match(own, other, COARSE_UPDATES)[-1][1]

    def _start_flow(self, reference: Tensor, query: Tensor, iters: int | None) -> Tensor:
        """Expected match of each reference feature under a softmax over all positions of the query, at 1/8."""
        small, other = pooled(reference, query, self.fixed_side)
        with torch.autocast(reference.device.type, enabled=False):
            volume = global_correlation(small, other) if self.start is None else self.start(small, other, iters)
            share = (volume * self.log_temperature.exp()).softmax(1)  # (B, Nq, h, w)
            flow = expected_flow(share, (other.shape[2], other.shape[3]))
            scale = reference.shape[2] / small.shape[2]
            return scale * upsample(flow, reference.shape[2:])
