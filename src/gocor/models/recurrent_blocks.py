"""The parts of the recurrent network: its features, its update and its upsampler."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.select import certain
from ..ops.warp import pixel_grid
from .recurrent_updates import Update

STRIDE = 8  # pixels of the image per pixel of the features
MAX_GLOBAL = 4096  # largest number of positions in global matching; larger maps are halved
MULTIPLE = 16  # the working size is a multiple of this: global matching works on features that are halved once more


class Features(NamedTuple):
    """Features of a batch of images.

    Attributes:
        coarse: matching features at 1/8.
        context: context features at 1/8; a query needs none.
        fine: matching features at 1/4, if the network has a fine stage.
        fine_context: context features at 1/4, if the network has a fine stage; a query needs none.
    """

    coarse: Tensor
    context: Tensor | None = None
    fine: Tensor | None = None
    fine_context: Tensor | None = None


class FeatureHead(nn.Module):
    """Features of VGG-16 at 1/2, 1/4 and 1/8, before pooling → features at 1/8.

    Args:
        inputs: channels of the three inputs.
        outputs: channels of the result.
        inner: channels of the hidden layers.
    """

    def __init__(self, inputs: tuple[int, ...], outputs: int, inner: int = 160) -> None:
        super().__init__()
        self.from_half = nn.Conv2d(inputs[0], inner, 5, stride=4, padding=2)
        self.from_quarter = nn.Conv2d(inputs[1], inner, 3, stride=2, padding=1)
        self.from_eighth = nn.Conv2d(inputs[2], inner, 1)
        self.blocks = nn.Sequential(ResidualBlock(inner), ResidualBlock(inner))
        self.last = nn.Conv2d(inner, outputs, 1)

    def forward(self, levels: list[Tensor]) -> Tensor:
        """`(B, C, H/2, W/2)`, `(B, C′, H/4, W/4)`, `(B, C″, H/8, W/8)` → `(B, outputs, H/8, W/8)`."""
        half, quarter, eighth = levels
        return self.last(self.blocks(self.from_half(half) + self.from_quarter(quarter) + self.from_eighth(eighth)))


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with group normalisation, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.GroupNorm(8, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(8, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` → `(B, C, H, W)`."""
        return x + self.layers(x)


class UpdateBlock(nn.Module):
    """RAFT's update: a motion encoder, a separable convolutional GRU and a head that predicts a change of the flow.

    Args:
        scores: channels of the scores that were looked up.
        hidden: channels of the state and of the context.
    """

    def __init__(self, scores: int, hidden: int) -> None:
        super().__init__()
        wide, half = 2 * hidden, hidden // 2
        self.of_scores = nn.Sequential(
            nn.Conv2d(scores, wide, 1), nn.ReLU(), nn.Conv2d(wide, wide - half, 3, padding=1), nn.ReLU()
        )
        self.of_flow = nn.Sequential(
            nn.Conv2d(2, hidden, 7, padding=3), nn.ReLU(), nn.Conv2d(hidden, half, 3, padding=1), nn.ReLU()
        )
        self.motion = nn.Sequential(nn.Conv2d(wide, hidden - 2, 3, padding=1), nn.ReLU())
        self.across = ConvGRU(hidden, (1, 5))
        self.down = ConvGRU(hidden, (5, 1))
        self.change = nn.Sequential(nn.Conv2d(hidden, wide, 3, padding=1), nn.ReLU(), nn.Conv2d(wide, 2, 3, padding=1))

    def given(self, context: Tensor) -> Update:
        """The update as a function, for a fixed context `(B, hidden, h, w)`.

        The function takes state, scores and flow, `(B, ·, h, w)` each, and returns the next state and the change of
        the flow.
        """
        across, down = self.across.given(context), self.down.given(context)

        def update(hidden: Tensor, scores: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
            flow = flow.contiguous(memory_format=torch.channels_last)  # as the scores and the context
            motion = self.motion(torch.cat([self.of_scores(scores), self.of_flow(flow)], 1))
            inputs = torch.cat([motion, flow.to(motion.dtype)], 1)
            hidden = down(across(hidden, inputs), inputs)
            return hidden, self.change(hidden).float()

        return update


class ConvGRU(nn.Module):
    """A gated recurrent unit whose products are convolutions along one direction.

    Args:
        channels: channels of the state, of the context and of the other inputs, each.
        kernel: height and width of the convolutions.
    """

    def __init__(self, channels: int, kernel: tuple[int, int]) -> None:
        super().__init__()
        self.channels = channels
        padding = kernel[0] // 2, kernel[1] // 2
        self.gates = nn.Conv2d(3 * channels, 2 * channels, kernel, padding=padding)
        self.candidate = nn.Conv2d(3 * channels, channels, kernel, padding=padding)

    def given(self, context: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """The unit as a function of state and inputs, `(B, channels, h, w)` each, which returns the next state.

        Convolutions are linear, so the contribution of the context is computed once.
        """
        gates, candidate = (_split_convolution(layer, context) for layer in (self.gates, self.candidate))

        def step(hidden: Tensor, inputs: Tensor) -> Tensor:
            update, reset = gates(torch.cat([hidden, inputs], 1)).sigmoid().chunk(2, 1)
            new = candidate(torch.cat([reset * hidden, inputs], 1)).tanh()
            return hidden + update * (new - hidden)

        return step


def _split_convolution(layer: nn.Conv2d, context: Tensor) -> Callable[[Tensor], Tensor]:
    """A convolution of (state, context, inputs) for a fixed context, as a function of (state, inputs)."""
    count = context.shape[1]
    before, middle, after = layer.weight.split([count, count, layer.in_channels - 2 * count], 1)
    fixed = F.conv2d(context, middle, layer.bias, padding=layer.padding)
    weight = torch.cat([before, after], 1)
    return lambda x: F.conv2d(x, weight, padding=layer.padding) + fixed


class ConvexUpsampler(nn.Module):
    """Coarse flow → full resolution: every pixel is a learnt convex combination of its 3×3 coarse neighbours.

    Args:
        hidden: channels of the state.
        stride: pixels of the image per pixel of the coarse flow.
    """

    def __init__(self, hidden: int, stride: int = STRIDE) -> None:
        super().__init__()
        self.stride = stride
        self.weights = nn.Sequential(
            nn.Conv2d(hidden, 2 * hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(2 * hidden, 9 * stride * stride, 1)
        )

    def forward(self, hidden: Tensor, flow: Tensor) -> Tensor:
        """State `(B, hidden, h, w)` and flow `(B, 2, h, w)` in coarse pixels → `(B, 2, s·h, s·w)` in fine pixels."""
        batch, _, height, width = flow.shape
        weights = (0.25 * self.weights(hidden)).view(batch, 1, 9, self.stride**2, height * width).softmax(2)
        neighbours = F.unfold(F.pad(self.stride * flow.float(), (1, 1, 1, 1), mode="replicate"), 3)
        fine = (weights.float() * neighbours.view(batch, 2, 9, 1, height * width)).sum(2)  # (B, 2, s², h·w)
        return F.pixel_shuffle(fine.view(batch, 2 * self.stride**2, height, width), self.stride)


def unit_norm(x: Tensor) -> Tensor:
    """Features of unit norm over channels, in float32."""
    return F.normalize(x.float(), dim=1, eps=1e-6)


def lookup_operand(query: Tensor) -> Tensor:
    """Query features in autocast's dtype, which halves the memory traffic of lookups."""
    kind = query.device.type
    return query.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else query


def pooled(reference: Tensor, query: Tensor, fixed_side: int | None) -> tuple[Tensor, Tensor]:
    """Features at 1/8 → features for global matching: halved once, then again while there are too many positions.

    With a `fixed_side` of the working size, all maps are halved as often as the largest one of that side, so that the
    operations are the same for all sizes.
    """
    height, width = reference.shape[2:]
    if fixed_side is not None:
        height = width = fixed_side // STRIDE
    halvings = 0
    while halvings == 0 or (height >> halvings) * (width >> halvings) > MAX_GLOBAL:
        reference, query = (unit_norm(F.avg_pool2d(x.float(), 2)) for x in (reference, query))
        halvings += 1
    return reference, query


def expected_flow(share: Tensor, size: tuple[int, int]) -> Tensor:
    """Flow `(B, 2, h, w)` to the expected match of each feature.

    Args:
        share: probabilities of the query's positions, `(B, Hq·Wq, h, w)`.
        size: (Hq, Wq).
    """
    positions = pixel_grid(*size, device=share.device).flatten(2)[0]  # (2, Nq)
    match = torch.einsum("bnyx,cn->bcyx", share, positions)
    return match - pixel_grid(share.shape[2], share.shape[3], device=share.device)


def round_side(side: int) -> int:
    """The nearest multiple of `MULTIPLE`, as `round` does it but in integers, which an exported graph can hold."""
    if certain(side % MULTIPLE == 0):
        return side
    half = MULTIPLE // 2 - 1 + side // MULTIPLE % 2  # a tie goes to the even multiple
    return torch.sym_max(MULTIPLE, (side + half) // MULTIPLE * MULTIPLE)
