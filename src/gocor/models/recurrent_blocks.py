"""The parts of the recurrent network: its features, its update and its upsampler."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STRIDE = 8  # pixels of the image per pixel of the features


class FeatureHead(nn.Module):
    """Features of VGG-16 at 1/2, 1/4 and 1/8, before pooling → features at 1/8.

    Args:
        inputs: channels of the three.
        outputs: channels of the result.
        inner: channels in between.
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
    """RAFT's update: a motion encoder, a separable convolutional GRU and a head that predicts a change of the flow."""

    def __init__(self, scores: int, hidden: int) -> None:
        super().__init__()
        self.of_scores = nn.Sequential(
            nn.Conv2d(scores, 256, 1), nn.ReLU(), nn.Conv2d(256, 192, 3, padding=1), nn.ReLU()
        )
        self.of_flow = nn.Sequential(
            nn.Conv2d(2, 128, 7, padding=3), nn.ReLU(), nn.Conv2d(128, 64, 3, padding=1), nn.ReLU()
        )
        self.motion = nn.Sequential(nn.Conv2d(256, 126, 3, padding=1), nn.ReLU())
        self.across = ConvGRU(hidden, hidden + 128, (1, 5))
        self.down = ConvGRU(hidden, hidden + 128, (5, 1))
        self.change = nn.Sequential(nn.Conv2d(hidden, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 2, 3, padding=1))

    def forward(self, hidden: Tensor, context: Tensor, scores: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        """State, context, scores and flow, `(B, ·, H/8, W/8)` each → the next state, and the change of the flow."""
        motion = self.motion(torch.cat([self.of_scores(scores), self.of_flow(flow)], 1))
        inputs = torch.cat([context, motion, flow.to(motion.dtype)], 1)
        hidden = self.down(self.across(hidden, inputs), inputs)
        return hidden, self.change(hidden).float()


class ConvGRU(nn.Module):
    """A gated recurrent unit whose products are convolutions along one direction."""

    def __init__(self, hidden: int, inputs: int, kernel: tuple[int, int]) -> None:
        super().__init__()
        padding = kernel[0] // 2, kernel[1] // 2
        self.gates = nn.Conv2d(hidden + inputs, 2 * hidden, kernel, padding=padding)
        self.candidate = nn.Conv2d(hidden + inputs, hidden, kernel, padding=padding)

    def forward(self, hidden: Tensor, inputs: Tensor) -> Tensor:
        """`(B, hidden, H, W)` and `(B, inputs, H, W)` → the next state."""
        update, reset = self.gates(torch.cat([hidden, inputs], 1)).sigmoid().chunk(2, 1)
        candidate = self.candidate(torch.cat([reset * hidden, inputs], 1)).tanh()
        return hidden + update * (candidate - hidden)


class ConvexUpsampler(nn.Module):
    """Flow at 1/8 → full resolution: every pixel is a learnt convex combination of its 3×3 coarse neighbours."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weights = nn.Sequential(
            nn.Conv2d(hidden, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 9 * STRIDE * STRIDE, 1)
        )

    def forward(self, hidden: Tensor, flow: Tensor) -> Tensor:
        """State `(B, hidden, h, w)` and flow `(B, 2, h, w)` in coarse pixels → `(B, 2, 8h, 8w)` in fine pixels."""
        batch, _, height, width = flow.shape
        weights = (0.25 * self.weights(hidden)).view(batch, 1, 9, STRIDE * STRIDE, height * width).softmax(2)
        neighbours = F.unfold(F.pad(STRIDE * flow.float(), (1, 1, 1, 1), mode="replicate"), 3)
        fine = (weights.float() * neighbours.view(batch, 2, 9, 1, height * width)).sum(2)  # (B, 2, 64, h·w)
        return F.pixel_shuffle(fine.view(batch, 2 * STRIDE * STRIDE, height, width), STRIDE)
