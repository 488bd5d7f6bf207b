"""The last updates of the recurrent network, at a quarter of the resolution."""

import torch.nn.functional as F
from torch import Tensor, nn

from ..modules import LocalGOCor
from ..ops import pool_pyramid
from ..ops.correlation.lookups import repeated_lookup
from .recurrent_blocks import ConvexUpsampler, ResidualBlock, UpdateBlock, lookup_operand, unit_norm
from .recurrent_updates import iterate
from .resizing import upsample

STRIDE = 4  # pixels of the image per pixel of the features
RADIUS, SCALES = 3, 2  # radius and scales of the lookups; this stage only corrects errors of a few pixels


class FineHead(nn.Module):
    """Features of VGG-16 at 1/2 and 1/4, before pooling → features at 1/4.

    Args:
        inputs: channels of the two inputs.
        outputs: channels of the result.
        inner: channels of the hidden layers.
    """

    def __init__(self, inputs: tuple[int, ...], outputs: int, inner: int) -> None:
        super().__init__()
        self.from_half = nn.Conv2d(inputs[0], inner, 3, stride=2, padding=1)
        self.from_quarter = nn.Conv2d(inputs[1], inner, 1)
        self.block = ResidualBlock(inner)
        self.last = nn.Conv2d(inner, outputs, 1)

    def forward(self, levels: list[Tensor]) -> Tensor:
        """`(B, C, H/2, W/2)`, `(B, C′, H/4, W/4)` → `(B, outputs, H/4, W/4)`."""
        return self.last(self.block(self.from_half(levels[0]) + self.from_quarter(levels[1])))


class FineStage(nn.Module):
    """Updates at 1/4 of the resolution, which start from the flow and the state at 1/8.

    Args:
        filters: layer that optimises the reference features into filters; `None` looks the features up themselves.
        inputs: channels of VGG-16 at 1/2 and 1/4.
        coarse: channels of the state at 1/8.
        channels: channels of the features, the state and the context at 1/4.
    """

    def __init__(self, filters: LocalGOCor | None, inputs: tuple[int, ...], coarse: int, channels: int) -> None:
        super().__init__()
        self.channels, self.filters = channels, filters
        inner = 8 * (3 * channels // 16)  # 1.5 times as many, in multiples of the normalisation's 8 groups
        self.matching_head = FineHead(inputs, channels, inner)
        self.context_head = FineHead(inputs, 2 * channels, inner)
        self.carry = nn.Conv2d(coarse, channels, 1)
        self.update = UpdateBlock(SCALES * (2 * RADIUS + 1) ** 2, channels)
        self.upsampler = ConvexUpsampler(channels, STRIDE)
        last = nn.Conv2d(channels, 2, 3, padding=1)
        # At first, the stage keeps the coarse flow and confidence. Random changes would move the flow by pixels.
        for parameter in (*last.parameters(), *self.update.change[-1].parameters()):
            nn.init.zeros_(parameter)
        self.confidence_head = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), last)

    def encode(self, levels: list[Tensor]) -> Tensor:
        """Features of VGG-16 → matching features of unit norm, `(B, channels, H/4, W/4)`."""
        return unit_norm(self.matching_head(levels))

    def forward(
        self,
        reference: Tensor,
        query: Tensor,
        context: Tensor,
        state: Tensor,
        flow: Tensor,
        updates: int,
        iters: int | None = None,
    ) -> list[tuple[Tensor, Tensor]]:
        """States and flows at 1/4, in pixels of 1/4, after each update.

        Args:
            reference: matching features `(B, channels, H/4, W/4)`.
            query: matching features, likewise.
            context: context features of the reference, `(B, 2·channels, H/4, W/4)`.
            state: state at 1/8, `(B, coarse, H/8, W/8)`.
            flow: `(B, 2, H, W)`, in pixels of the image.
            updates: number of updates.
            iters: iterations of the filters, in place of the layer's own.
        """
        size = reference.shape[2], reference.shape[3]
        own, context = context.split([self.channels, self.channels], 1)
        carried = upsample(self.carry(state), size)
        hidden, update = (own + carried).tanh(), self.update.given(context.relu())
        filters = reference if self.filters is None else self.filters.filters(reference, iters)
        look_up = repeated_lookup(filters, pool_pyramid(lookup_operand(query), SCALES), RADIUS)
        flow = upsample(flow, size) / STRIDE
        return iterate(update, look_up, hidden, flow, updates)

    def confidence(self, hidden: Tensor, coarse: Tensor) -> Tensor:
        """Logits `(B, 2, H, W)` from the state at 1/4 and those of the state at 1/8, `(B, 2, H/8, W/8)`."""
        logits = self.confidence_head(hidden).float()
        logits = logits + upsample(coarse, logits.shape[2:])
        return F.interpolate(logits, scale_factor=STRIDE, mode="bilinear", align_corners=False)
