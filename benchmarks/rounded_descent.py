"""What rounding the products of the descent to TF32 does to training: gradients and errors of small recurrent networks.

A GPU's tensor cores round the operands of float32 products to TF32, which has 11 significant bits, where torch allows
it. GOCor's descent never lets them. Here the same rounding is imitated on any device.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.report import parser, report
from gocor.models.recurrent import RecurrentNet
from gocor.ops.correlation import local
from gocor.training.build import build_step
from gocor.training.config import make_config
from gocor.training.distributed import Group
from gocor.training.sources import open_sources

PLAIN, GOCOR = "recurrent", "recurrent-gocor"
ABSOLUTE = {"local.regularizer": "absolute", "local.regularization": 0.01}
VARIANTS: tuple[tuple[str, str, dict[str, Any], bool], ...] = (  # name, model, options of the network, rounded
    ("plain features", PLAIN, {}, False),
    ("filters, absolute λ = 0.01", GOCOR, ABSOLUTE, False),
    ("filters, absolute λ = 0.01, TF32", GOCOR, ABSOLUTE, True),
    ("filters, relative", GOCOR, {}, False),
    ("filters, relative, TF32", GOCOR, {}, True),
)
WINDOW = 20  # steps over which errors and gradient norms are averaged


def to_tf32(x: Tensor) -> Tensor:
    """Float32 rounded to the 10 stored bits of TF32's mantissa, to nearest."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).to(x.dtype)


@contextmanager
def rounded_descent() -> Iterator[None]:
    """Round the operands of those local correlations, and of their adjoints, that ask for exact products."""
    run: Callable[..., Tensor] = local._run

    def rounded(name: str, first: Tensor, features: Tensor, *rest: Any) -> Tensor:
        exact = rest[-1]
        return run(name, *((to_tf32(x) if exact else x) for x in (first, features)), *rest)

    with mock.patch.object(local, "_run", rounded):
        yield


def learn(model: str, network: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Train a network from ImageNet features with 4 pairs of 96×128 a step and 3 updates; returns figures of a row."""
    steps = options.steps
    settings = {"model": model, "network": network, "data": (options.data,), "objects": (options.objects,)}
    settings |= {"preset": options.preset, "steps": steps, "batch": 4, "size": (96, 128), "device": options.device}
    config = make_config({**settings, "precision": "float32", "output": "unused"})
    group = Group(0, 1, torch.device(options.device))
    step, pairs = build_step(config, group), open_sources(config, group.device).train
    row: dict[str, Any] = {}
    mean_norm = largest = window_norm = window_error = 0.0
    for index in range(steps):
        step.load(pairs.batch(index, config.batch), lr=config.lr * min(1.0, (index + 1) / 20), ema_weight=0.01)
        step.compute()
        metrics = step.read()
        window_norm, window_error = window_norm + metrics["grad_norm"], window_error + metrics["epe"]
        largest = max(largest, metrics["grad_norm"])
        if (index + 1) % WINDOW == 0:
            mean_norm = max(mean_norm, window_norm / WINDOW)
            if (index + 1) in (steps // 6, steps // 3, 2 * steps // 3, steps):
                row[f"error at {index + 1}"] = window_error / WINDOW
            window_norm = window_error = 0.0
    return row | {"norm, largest mean": mean_norm, "norm, largest": largest}


def main() -> None:
    """Print end-point errors in pixels after some steps, and norms of the gradient."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", required=True, help="photos")
    arguments.add_argument("--objects", required=True, help="cut-outs that move")
    arguments.add_argument("--preset", default="flow")
    arguments.add_argument("--steps", type=int, default=240, help="a multiple of 120")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads or torch.get_num_threads())
    rows = []
    for name, model, network, rounded in VARIANTS:
        with rounded_descent() if rounded else nullcontext(), mock.patch.object(RecurrentNet, "training_updates", 3):
            found = learn(model, network, options)
        rows.append({"network": name, **found})
        print(rows[-1], flush=True)
    report("Training with products of the descent rounded to TF32", rows, options)


if __name__ == "__main__":
    main()
