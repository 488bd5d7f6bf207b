"""What a local layer's regulariser learns, by its start: the layer alone, trained to match noisy, smooth features."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.report import parser, report
from gocor import LocalGOCor

RADIUS, SHIFT, NOISE = 3, (1, -2), 0.15
RATE = 6e-4  # BaseNet's learning rate
STARTS: tuple[dict[str, Any], ...] = (
    {},
    {"regularization": 0.1},
    {"regularization": 1.0},
    {"regularizer": "relative"},
    {"regularizer": "relative", "regularization": 0.05},
)


def features(step: int, device: str) -> tuple[Tensor, Tensor]:
    """Features whose neighbours look alike, of norm 1 on average, and the same shifted and with noise."""
    generator = torch.Generator().manual_seed(step)
    reference = F.avg_pool2d(torch.randn(2, 32, 18, 18, generator=generator), 3, 1).relu()
    reference = reference / reference.square().sum(1).mean().sqrt()
    noise = torch.randn(reference.shape, generator=generator) * NOISE / reference.shape[1] ** 0.5
    return reference.to(device), (reference.roll(SHIFT, (2, 3)) + noise).to(device)


def learn(start: dict[str, Any], steps: int, device: str) -> dict[str, Any]:
    """Train a layer by the cross-entropy of its scores; returns a row of the table."""
    layer, gain = LocalGOCor(RADIUS, **start).to(device), nn.Parameter(torch.tensor(1.0, device=device))
    optimizer = torch.optim.Adam([*layer.parameters(), gain], lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.05)
    true = (SHIFT[0] + RADIUS) * (2 * RADIUS + 1) + SHIFT[1] + RADIUS
    at = [0, steps // 10, steps // 2, steps]
    row: dict[str, Any] = {"rule": start.get("regularizer", "absolute")}
    losses: list[float] = []
    for step in range(steps + 1):
        if step in at:
            row[f"step {step}"] = f"{abs(layer.learnt_scalars()['regularization']):.2g}"
        scores = gain.exp() * layer(*features(step, device)).flatten(2)
        loss = F.cross_entropy(scores, torch.full((scores.shape[0], scores.shape[2]), true, device=device))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step < steps:
            optimizer.step()
            schedule.step()
    last = losses[-steps // 8 :]
    return row | {"v⁺(0)": layer.objective.weight[0].item(), "loss": f"{sum(last) / len(last):.3f}"}


def main() -> None:
    """Print λ or ρ at four steps, v⁺(0) at the end, and the mean loss of the last eighth of the steps."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--steps", type=int, default=1500)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads or 1)
    report("Regulariser", [learn(start, options.steps, options.device) for start in STARTS], options)


if __name__ == "__main__":
    main()
