"""Pairs and runs that are small enough for tests; as a program, a run in a process of its own.

python -m tests.training.toy OUTPUT STEPS [KEY=VALUE …] [--resume]
"""

import sys

import torch
import torch.nn.functional as F

from gocor.data.synthetic.batch import PairBatch
from gocor.training import make_config, train
from gocor.training.config import TrainConfig, parse_assignment
from gocor.training.sources import Sources

MODEL = "pwcnet-gocor-tiny"


class Toy:
    """Smooth random pictures, moved by whole pixels: a pure function of seed, step and number, like the real pairs.

    Args:
        size: of the images.
        seed: of the pictures.
        fixed: give the pairs of step 0 at every step.
        reach: largest move along an axis.
    """

    def __init__(self, size=(64, 64), seed=0, *, fixed=False, reach=8):
        self.size, self.seed, self.fixed, self.reach = size, seed, fixed, reach

    def batch(self, step, batch_size, *, rank=0, world_size=1):
        share = batch_size // world_size
        return PairBatch.cat([self.pair(0 if self.fixed else step, i) for i in range(rank * share, (rank + 1) * share)])

    def pair(self, step, number):
        height, width = self.size
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + 1009 * step + number)
        room = self.reach
        coarse = 255 * torch.rand(1, 3, height // 4, width // 4, generator=generator)
        picture = F.interpolate(coarse, (height + 2 * room, width + 2 * room), mode="bicubic", align_corners=False)
        x, y = torch.randint(-room, room + 1, (2,), generator=generator).tolist()
        query = picture[:, :, room : room + height, room : room + width].clamp(0, 255)
        reference = picture[:, :, room + y : room + y + height, room + x : room + x + width].clamp(0, 255)
        flow = torch.tensor([float(x), float(y)]).view(1, 2, 1, 1).expand(1, 2, height, width)
        column, row = torch.arange(width)[None] + x, torch.arange(height)[:, None] + y
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        return PairBatch(reference, query, flow, inside[None, None], torch.zeros(1, 1, height, width, dtype=torch.bool))


def toy_config(output, **options) -> TrainConfig:
    defaults = {
        "model": MODEL,
        "output": str(output),
        "data": ["toy"],
        "device": "cpu",
        "size": 64,
        "batch": 2,
        "steps": 4,
        "lr": 2e-3,
        "ema": 0.9,
        "log_every": 1,
        "validate_every": 1000,
        "validation_pairs": 2,
        "checkpoint_every": 1000,
    }
    return make_config(defaults | options)


def toy_sources(config: TrainConfig, **options) -> Sources:
    return Sources(Toy(config.size, config.seed, **options), Toy(config.size, config.seed + 1), "toy pairs")


def toy_run(output, *, resume=False, sources=None, **options):
    config = toy_config(output, **options)
    return train(config, resume=resume, sources=sources or toy_sources(config), quiet=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    output, steps, *others = sys.argv[1:]
    assigned = dict(parse_assignment(text) for text in others if text != "--resume")
    toy_run(output, steps=int(steps), resume="--resume" in others, **assigned)
