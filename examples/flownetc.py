"""GOCor in FlowNetC, a network that others designed: the correlation layer changes, everything else stays.

FlowNetC (Dosovitskiy et al., "FlowNet: Learning Optical Flow with Convolutional Networks", ICCV 2015) correlates the
features of both images at 1/8 of the resolution, and an encoder-decoder turns the volume into flow. The layers below
are written anew from the paper. Their kernels and channels were compared with those of FlowNetPytorch
(github.com/ClementPinard/FlowNetPytorch, MIT licence), of which no code is used. What differs from the paper:

- The search radius is 4 features, which is 32 pixels, in place of 20 in steps of two, because the images are small.
- All channels are multiplied by `width`, so that a CPU can train it.
- Convolutions have a batch normalisation, as in FlowNetPytorch's variant `flownetc_bn`, and the predicted flow starts
  at zero. The training here is short.

    python examples/flownetc.py

trains it with each layer, from the same initial weights and on the same pairs:

    FlowNetC(LocalFeatureCorrelation(4))                   # as published: mean over channels
    FlowNetC(LocalFeatureCorrelation(4, normalize="sum"))  # sum over channels, the scale of GOCor's start
    FlowNetC(LocalGOCor(4))

Pairs for training are made from one of the two bundled scenes, pairs for validation from the other one.
"""

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gocor
from gocor import LocalFeatureCorrelation, LocalGOCor
from gocor.data.synthetic import Colour, Motion, PhotoStore, Preset, SyntheticPairs
from gocor.data.synthetic.sources import ImageFile

RADIUS, REDIRECTED = 4, 32  # search radius in features; channels that pass the correlation
FLOW_UNIT = 20.0  # pixels: the network predicts flow in this unit
SIZE = (128, 128)  # of the images, multiples of 64
MOTION = Preset(
    (Motion(rotation=8.0, zoom=0.08, shift=0.2, corners=0.04),), colour=Colour(exposure=0.0, light=0.0, blur=1.0)
)
BATCH, VALIDATION_BATCHES = 4, 24
LEARNING_RATE, WARMUP = 3e-3, 0.1  # highest rate, and share of the steps for warm-up
ASSETS = Path(gocor.__file__).parent / "assets"
TRAINING = ("reference.jpg", "query.jpg")
VALIDATION = ("facade_reference.jpg", "facade_query.jpg")


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution, batch normalisation and LeakyReLU."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1))


def down(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions, the first of which halves the resolution."""
    return nn.Sequential(conv(inputs, outputs, stride=2), conv(outputs, outputs))


class Refinement(nn.Module):
    """One step of the decoder: twice the resolution, the encoder's features are added, and the flow is predicted.

    Args:
        inputs: channels of the decoder's features so far.
        skipped: channels of the encoder's features at the new resolution.
        outputs: channels of the enlarged features.
    """

    def __init__(self, inputs: int, skipped: int, outputs: int) -> None:
        super().__init__()
        self.enlarge = nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.LeakyReLU(0.1))
        self.enlarge_flow = nn.ConvTranspose2d(2, 2, 4, 2, 1, bias=False)
        self.channels = skipped + outputs + 2
        self.predict = nn.Conv2d(self.channels, 2, 3, padding=1, bias=False)

    def forward(self, x: Tensor, flow: Tensor, skipped: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, inputs, h, w)`, `(B, 2, h, w)`, `(B, skipped, 2h, 2w)` → features and flow at `2h × 2w`."""
        x = torch.cat([skipped, self.enlarge(x), self.enlarge_flow(flow)], 1)
        return x, self.predict(x)


class FlowNetC(nn.Module):
    """The flow from reference to query, at 1/4 of the resolution.

    Args:
        correlation: two feature maps `(B, C, H, W)` → volume `(B, (2R+1)², H, W)`.
        width: factor on all channels of the paper, except those of the volume and those beside it.
    """

    def __init__(self, correlation: nn.Module, *, width: float = 1.0) -> None:
        super().__init__()
        c64, c128, c256, c512, c1024 = (round(width * n) for n in (64, 128, 256, 512, 1024))
        self.conv2 = nn.Sequential(conv(3, c64, 7, 2), conv(c64, c128, 5, 2))  # to 1/4
        self.conv3 = conv(c128, c256, 5, 2)  # to 1/8
        self.redirect = conv(c256, REDIRECTED, 1)
        self.correlation = correlation
        self.merge = conv(REDIRECTED + (2 * RADIUS + 1) ** 2, c256)
        self.down = nn.ModuleList([down(c256, c512), down(c512, c512), down(c512, c1024)])  # to 1/64
        self.predict = nn.Conv2d(c1024, 2, 3, padding=1, bias=False)
        refinements, channels = [], c1024
        for skipped, outputs in ((c512, c512), (c512, c256), (c256, c128), (c128, c64)):
            refinements.append(Refinement(channels, skipped, outputs))
            channels = refinements[-1].channels
        self.refinements = nn.ModuleList(refinements)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.kaiming_normal_(module.weight, a=0.1)
        for predictor in (self.predict, *(refinement.predict for refinement in refinements)):
            nn.init.zeros_(predictor.weight)  # the flow starts at zero

    def forward(self, reference: Tensor, query: Tensor) -> list[Tensor]:
        """RGB images `(B, 3, H, W)` in [0, 255] → flows in pixels of the image, from 1/64 to 1/4 of the resolution."""
        quarter, eighth = [], []
        for image in (reference, query):
            quarter.append(self.conv2(image / 255 - 0.5))
            eighth.append(self.conv3(quarter[-1]))
        volume = F.leaky_relu(self.correlation(*eighth), 0.1)  # (B, (2R+1)², H/8, W/8)
        features = [quarter[0], self.merge(torch.cat([self.redirect(eighth[0]), volume], 1))]
        for layers in self.down:
            features.append(layers(features[-1]))
        x = features.pop()
        flows = [self.predict(x)]
        for refinement in self.refinements:
            x, flow = refinement(x, flows[-1], features.pop())
            flows.append(flow)
        return [FLOW_UNIT * flow for flow in flows]


def make_pairs(names: Sequence[str], seed: int, device: str) -> SyntheticPairs:
    """Pairs made from bundled photos by a random motion, with exact flow."""
    photos = PhotoStore([ImageFile(ASSETS, name) for name in names], device=device, max_side=256)
    return SyntheticPairs(photos, preset=MOTION, size=SIZE, seed=seed)


def endpoint_errors(flow: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """End-point errors in pixels of a flow `(B, 2, h, w)`, in cells whose pixels are all valid; `truth` is finer."""
    cell = truth.shape[2] // flow.shape[2]
    truth, inside = F.avg_pool2d(truth, cell), F.avg_pool2d(valid.float(), cell) == 1
    return (flow - truth).norm(dim=1)[inside[:, 0]]


def train(net: FlowNetC, steps: int, seed: int, device: str) -> list[float]:
    """Train on the end-point errors of all five flows; returns the error of the finest one at each step."""
    optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor((step + 1) / (steps + 1)))
    pairs, found = make_pairs(TRAINING, seed, device), []
    net.train()
    for step in range(steps):
        batch = pairs.batch(step, BATCH)
        errors = [endpoint_errors(f, batch.flow, batch.valid) for f in net(batch.reference, batch.query)]
        loss = torch.stack([error.mean() for error in errors if len(error)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        found.append(errors[-1].mean().item())
    return found


def learning_rate_factor(progress: float) -> float:
    """Linear warm-up times cosine decay, for progress from 0 to 1."""
    return min(1.0, progress / WARMUP) * (1 + math.cos(math.pi * progress)) / 2


@torch.no_grad()
def validate(net: FlowNetC, device: str) -> float:
    """Mean end-point error of the finest flow in pixels, on pairs of a scene that was not trained on."""
    pairs, errors = make_pairs(VALIDATION, 1_000_000, device), []
    net.eval()
    for step in range(VALIDATION_BATCHES):
        batch = pairs.batch(step, BATCH)
        errors.append(endpoint_errors(net(batch.reference, batch.query)[-1], batch.flow, batch.valid))
    return torch.cat(errors).mean().item()


def build_networks(width: float) -> dict[str, FlowNetC]:
    """One network per layer, with the same initial weights outside of the correlation."""
    layers = {
        "correlation, mean": LocalFeatureCorrelation(RADIUS),
        "correlation, sum": LocalFeatureCorrelation(RADIUS, normalize="sum"),
        "GOCor": LocalGOCor(RADIUS),
    }
    networks = {name: FlowNetC(layer, width=width) for name, layer in layers.items()}
    shared = networks["correlation, mean"].state_dict()  # plain layers have no parameters
    for network in networks.values():
        network.load_state_dict(shared, strict=False)
    return networks


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Train and compare the networks; returns the results of `validate` by layer, one per seed."""
    parser = argparse.ArgumentParser(description="FlowNetC with plain correlation and with GOCor.")
    parser.add_argument("--steps", type=int, default=400, help="training steps of each network")
    parser.add_argument(
        "--seeds", type=int, default=2, help="how many times to train, each with other weights and data"
    )
    parser.add_argument("--width", type=float, default=0.25, help="factor on the channels of the paper")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args(arguments)
    results: dict[str, list[float]] = {}
    print(f"{'seed':>4} {'layer':18} {'parameters':>10} {'EPE [px]':>9} {'training [s]':>13}")
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        for name, net in build_networks(options.width).items():
            net.to(options.device)
            start = time.perf_counter()
            train(net, options.steps, seed, options.device)
            seconds = time.perf_counter() - start
            results.setdefault(name, []).append(validate(net, options.device))
            parameters = sum(p.numel() for p in net.parameters())
            print(f"{seed:4} {name:18} {parameters:10} {results[name][-1]:9.2f} {seconds:13.1f}", flush=True)
    return results


if __name__ == "__main__":
    main()
