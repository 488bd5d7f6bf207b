"""GOCor in a network of your own: one line changes, everything else stays.

A small matching network is trained twice on images full of repeated texture, from the same initial weights, on the
same pairs, with the same schedule. The only difference is the correlation layer that it is built with:

    plain = MatchingNet(LocalFeatureCorrelation(radius=4, normalize="sum"))
    gocor = MatchingNet(LocalGOCor(radius=4))

Each pixel of such a texture looks like the same pixel of every other tile, and plain correlation gives them similar
scores. GOCor optimises each filter to respond to its own pixel and not to the other pixels of the reference, so that
the small differences between the tiles decide. With `--iters 0` nothing is optimised, and the advantage is gone. A
network with a global correlation changes in the same way, from `GlobalFeatureCorrelation()` to
`GlobalGOCor(channels=64)`.

    python examples/plug_into_your_network.py

takes one to two minutes on two CPU cores.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from gocor import LocalFeatureCorrelation, LocalGOCor

SIZE, STRIDE, RADIUS = 64, 4, 4  # image side and feature cell in pixels, search radius in cells
TILE, TILES = 4, 12  # nodes along the side of a tile, tiles along the side of a texture
NODE_SPACING = 3.0  # pixels, ± 1/6: tiles have 10 to 14 pixels, so that a search window contains several
OWN_SHARE = 0.25  # contrast of the differences between tiles, relative to the repeated tile
MAX_SHIFT, MAX_DEFORMATION = 10.0, 0.05  # pixels, and entries of the affine matrix
GAIN, OFFSET, NOISE = 0.2, 0.2, 0.05  # photometric differences between the two images
BATCH, VALIDATION_BATCHES = 8, 32
LEARNING_RATE, WARMUP = 3e-3, 0.25  # highest rate, and share of the steps for warm-up; chosen for plain correlation


class Pairs(NamedTuple):
    """Image pairs, the flow from reference to query, and the pixels whose target is inside the query."""

    reference: Tensor  # (B, 1, S, S)
    query: Tensor  # (B, 1, S, S)
    flow: Tensor  # (B, 2, S, S), channel 0 = x (right), 1 = y (down), in pixels
    valid: Tensor  # (B, 1, S, S)


def uniform(generator: Generator, *shape: int) -> Tensor:
    """Uniform random numbers between −1 and 1."""
    return 2 * torch.rand(shape, generator=generator) - 1


def draw_scene(batch: int, generator: Generator) -> Callable[[Tensor], Tensor]:
    """Draw a texture of repeated tiles with small differences, randomly rotated and scaled.

    Returns:
        The scene: a smooth function from points `(B, S·S, 2)`, in pixels relative to the centre, to intensities
        `(B, 1, S, S)`. It is defined everywhere, so both images are sampled from it and their flow is exact.
    """
    nodes = TILE * TILES
    tile = torch.randn(batch, 1, TILE, TILE, generator=generator)
    texture = tile.tile(1, 1, TILES, TILES) + OWN_SHARE * torch.randn(batch, 1, nodes, nodes, generator=generator)
    angle, spacing = math.pi * uniform(generator, batch), NODE_SPACING * (1 + uniform(generator, batch) / 6)
    cos, sin = angle.cos() / spacing, angle.sin() / spacing
    to_nodes = torch.stack([cos, sin, -sin, cos], 1).view(batch, 2, 2)

    def scene(points: Tensor) -> Tensor:
        grid = (points @ to_nodes.mT * (2 / nodes)).view(batch, SIZE, SIZE, 2)
        return F.grid_sample(texture, grid, mode="bicubic", padding_mode="reflection", align_corners=False)

    return scene


def photograph(image: Tensor, generator: Generator) -> Tensor:
    """Add a random gain, a random offset and noise to images `(B, 1, S, S)`."""
    gain, offset = 1 + GAIN * uniform(generator, len(image), 1, 1, 1), OFFSET * uniform(generator, len(image), 1, 1, 1)
    return gain * image + offset + NOISE * torch.randn(image.shape, generator=generator)


def make_pairs(batch: int, generator: Generator, device: str = "cpu") -> Pairs:
    """Make pairs of a scene and the same scene under an affine motion p ↦ q = A·p + t.

    They are made on the CPU, so that a seed gives the same pairs on every device.
    """
    axis = torch.arange(SIZE) - (SIZE - 1) / 2
    p = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1).view(1, -1, 2).expand(batch, -1, -1)
    matrix = torch.eye(2) + MAX_DEFORMATION * uniform(generator, batch, 2, 2)
    shift = MAX_SHIFT * uniform(generator, batch, 1, 2)
    q = p @ matrix.mT + shift  # (B, S·S, 2): targets of the reference pixels
    source = (p - shift) @ matrix.inverse().mT  # scene points that the query pixels show
    scene = draw_scene(batch, generator)
    pairs = Pairs(
        reference=photograph(scene(p), generator),
        query=photograph(scene(source), generator),
        flow=(q - p).mT.reshape(batch, 2, SIZE, SIZE),
        valid=(q.abs() <= (SIZE - 1) / 2).all(-1).view(batch, 1, SIZE, SIZE),
    )
    return Pairs(*(x.to(device) for x in pairs))


class MatchingNet(nn.Module):
    """Encoder, correlation, decoder: the flow from reference to query, one vector per cell of 4×4 pixels.

    Args:
        correlation: two feature maps `(B, C, H, W)` → correspondence volume `(B, (2R+1)², H, W)`.
        channels: C.
    """

    def __init__(self, correlation: nn.Module, channels: int = 64) -> None:
        super().__init__()
        self.encoder = nn.Sequential(  # without normalisation, plain correlation learns nothing for hundreds of steps
            *(nn.Conv2d(1, 32, 5, stride=2, padding=2), nn.InstanceNorm2d(32), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(32, channels, 3, stride=2, padding=1), nn.InstanceNorm2d(channels), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(channels, channels, 3, padding=1), nn.InstanceNorm2d(channels), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(channels, channels, 3, padding=1), nn.InstanceNorm2d(channels)),
        )
        self.correlation = correlation
        self.decoder = nn.Sequential(
            *(nn.Conv2d((2 * RADIUS + 1) ** 2, 96, 3, padding=1), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(96, 64, 3, padding=1), nn.LeakyReLU(0.1)),
            nn.Conv2d(64, 2, 3, padding=1),
        )

    def forward(self, reference: Tensor, query: Tensor) -> Tensor:
        """`(B, 1, S, S)` twice → flow `(B, 2, S/4, S/4)` in image pixels."""
        features = [F.normalize(self.encoder(image), dim=1) for image in (reference, query)]
        volume = self.correlation(*features)  # (B, (2R+1)², S/4, S/4)
        volume = F.normalize(volume.relu(), dim=1)  # better for plain correlation than a LeakyReLU
        return STRIDE * self.decoder(volume)


def endpoint_errors(flow: Tensor, pairs: Pairs) -> Tensor:
    """End-point errors in pixels of a flow `(B, 2, S/4, S/4)`, in cells whose pixels are all valid."""
    truth, valid = F.avg_pool2d(pairs.flow, STRIDE), F.avg_pool2d(pairs.valid.float(), STRIDE) == 1
    return (flow - truth).norm(dim=1)[valid[:, 0]]


def learning_rate_factor(progress: float) -> float:
    """Linear warm-up times cosine decay, for progress from 0 to 1; plain correlation needs the warm-up."""
    return min(1.0, progress / WARMUP) * (1 + math.cos(math.pi * progress)) / 2


def train(net: MatchingNet, steps: int, seed: int, device: str) -> float:
    """Train on pairs that are made on the fly; returns the time in seconds."""
    optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor((step + 1) / (steps + 1)))
    generator = torch.Generator().manual_seed(seed)
    start = time.perf_counter()
    for _ in range(steps):
        pairs = make_pairs(BATCH, generator, device)
        loss = endpoint_errors(net(pairs.reference, pairs.query), pairs).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


@torch.no_grad()
def validate(net: MatchingNet, seed: int, device: str) -> tuple[float, float]:
    """Mean end-point error in pixels, and share of cells with an error of at most one cell, on new pairs."""
    generator = torch.Generator().manual_seed(seed + 1_000_000)
    batches = (make_pairs(BATCH, generator, device) for _ in range(VALIDATION_BATCHES))
    errors = torch.cat([endpoint_errors(net(pairs.reference, pairs.query), pairs) for pairs in batches])
    return errors.mean().item(), (errors <= STRIDE).float().mean().item()


def build_networks(iters: int) -> dict[str, MatchingNet]:
    """Build both networks, with the same initial weights outside of the correlation layer."""
    plain = MatchingNet(LocalFeatureCorrelation(radius=RADIUS, normalize="sum"))
    gocor = MatchingNet(LocalGOCor(radius=RADIUS, iters=iters))  # the line that changes
    gocor.encoder.load_state_dict(plain.encoder.state_dict())
    gocor.decoder.load_state_dict(plain.decoder.state_dict())
    return {"correlation": plain, "GOCor": gocor}


def main(arguments: Sequence[str] | None = None) -> dict[str, tuple[float, float]]:
    """Train and compare both networks; returns the results of `validate` by layer."""
    parser = argparse.ArgumentParser(description="The same network with plain correlation and with GOCor.")
    parser.add_argument("--steps", type=int, default=400, help="training steps of each network")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial weights and of the data")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--iters", type=int, default=3, help="steepest-descent iterations of GOCor")
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    results = {}
    print(f"{'layer':12} {'parameters':>10} {'EPE [px]':>9} {'within 1 cell':>14} {'training [s]':>13}")
    for name, net in build_networks(options.iters).items():
        net.to(options.device)
        seconds = train(net, options.steps, options.seed, options.device)
        error, share = results[name] = validate(net, options.seed, options.device)
        parameters = sum(p.numel() for p in net.parameters())
        print(f"{name:12} {parameters:10d} {error:9.2f} {share:14.1%} {seconds:13.1f}", flush=True)
    return results


if __name__ == "__main__":
    main()
