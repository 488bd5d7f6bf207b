"""One training step as a function of fixed tensors: the same code runs eagerly and inside a CUDA graph."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..data.synthetic.batch import PairBatch
from ..models.network import MatchingNetwork
from .config import TrainConfig
from .distributed import Group
from .losses import end_point_error, known_pixels, loss_rule, multi_level_loss
from .optimizer import build_optimizer, take_step, update_average
from .targets import level_target

METRICS = ("loss", "epe", "grad_norm")


@dataclass(frozen=True)
class Buffers:
    """What a step reads, at fixed places in memory: images `(B, 3, H, W)`, flow, where it counts, two scalars."""

    reference: Tensor
    query: Tensor
    flow: Tensor
    mask: Tensor
    lr: Tensor
    ema_weight: Tensor


class TrainStep:
    """Forward pass, loss, backward pass, clipping, optimiser and moving average.

    A step whose gradient is not finite changes nothing and is counted. Nothing is read back to the host: sums of the
    metrics are kept on the device until `read` is called.

    Args:
        network: what is trained.
        average: a network of the same kind that holds the moving average of its weights.
        config: options of the run.
        group: the processes that take the step together.
        shape: `(B, H, W)` of this process's batches.
    """

    def __init__(
        self,
        network: MatchingNetwork,
        average: MatchingNetwork,
        config: TrainConfig,
        group: Group,
        shape: tuple[int, int, int],
    ) -> None:
        batch, height, width = shape
        device = group.device
        self.network, self.average, self.config, self.group = network, average, config, group
        self.size = height, width
        units = network.level_units(*self.size)
        self.rule = loss_rule(config, network, len(units))
        self.units = units[: len(self.rule.weights)]
        self.autocast_dtype = autocast_dtype(config, device)
        self.buffers = Buffers(
            reference=torch.zeros(batch, 3, height, width, device=device),
            query=torch.zeros(batch, 3, height, width, device=device),
            flow=torch.zeros(batch, 2, height, width, device=device),
            mask=torch.zeros(batch, 1, height, width, dtype=torch.bool, device=device),
            lr=torch.zeros((), device=device),
            ema_weight=torch.zeros((), device=device),
        )
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimizer = build_optimizer(network, config, self.buffers.lr)
        self.totals = torch.zeros(len(METRICS) + 1, device=device)  # sums of the metrics, and of how many steps
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        trained, averaged = network.state_dict(), average.state_dict()
        learnt = {name for name, p in network.named_parameters() if p.requires_grad}
        self.statistics = [b for _, b in network.named_buffers()]
        learnt |= {name for name, b in network.named_buffers() if b.is_floating_point()}
        self.moving = [[state[name] for name in trained if name in learnt] for state in (trained, averaged)]

    def load(self, pairs: PairBatch, *, lr: float, ema_weight: float) -> None:
        """Fill the buffers. Flow that is not known or is outside the query does not count, nor, where asked, hidden."""
        buffers = self.buffers
        if pairs.reference.shape != buffers.reference.shape:
            raise ValueError(f"expected images {tuple(buffers.reference.shape)}, got {tuple(pairs.reference.shape)}")
        buffers.reference.copy_(pairs.reference, non_blocking=True)
        buffers.query.copy_(pairs.query, non_blocking=True)
        buffers.flow.copy_(pairs.flow, non_blocking=True)
        counted = pairs.valid | pairs.occluded if self.config.count_occluded else pairs.valid & ~pairs.occluded
        buffers.mask.copy_(counted, non_blocking=True)
        buffers.lr.fill_(lr)
        buffers.ema_weight.fill_(ema_weight)

    def compute(self) -> None:
        """Take a step with what the buffers hold."""
        for parameter in self.parameters:
            parameter.grad = None
        before = [b.clone() for b in self.statistics]  # a forward pass that overflows spoils them for good
        flows = self.forward()
        targets = [
            level_target(self.buffers.flow, self.buffers.mask, (flow.shape[2], flow.shape[3]), unit)
            for flow, unit in zip(flows, self.units, strict=True)
        ]
        counts = self.group.sum_(known_pixels(targets))
        loss = multi_level_loss(flows, targets, self.rule, counts)
        loss.backward()
        self.group.sum_gradients(self.parameters)
        with torch.no_grad():
            limit = self.config.clip or float("inf")
            norm = nn.utils.clip_grad_norm_(self.parameters, limit)
            failed = ~norm.isfinite()
            take_step(self.optimizer, skip=failed.float())
            for old, new in zip(before, self.statistics, strict=True):
                new.copy_(torch.where(failed, old, new))
            values, averages = self.moving
            update_average(averages, values, self.buffers.ema_weight)
            epe = self.fine_error(flows[-1], targets[-1]) / counts[-1].clamp(min=1)
            seen = self.group.sum_(torch.stack([loss.detach(), epe]))
            metrics = torch.stack([*seen.unbind(), norm, torch.ones_like(norm)])
            self.totals.add_(torch.where(failed, 0.0, metrics))
            self.skipped.add_(failed)

    def forward(self) -> list[Tensor]:
        """Flows of the levels that count."""
        images = self.network.prepare(self.buffers.reference, self.buffers.query, self.network.working_size(*self.size))
        if uses_channels_last(self.config, self.group.device):
            images = tuple(image.contiguous(memory_format=torch.channels_last) for image in images)
        dtype = self.autocast_dtype
        with torch.autocast(self.group.device.type, dtype=dtype, enabled=dtype is not None):
            return self.network.levels(*images, **iterations(self.network, self.config), count=len(self.units))

    def fine_error(self, flow: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
        """Sum of the finest level's end-point errors, in pixels of the images."""
        height, width = self.units[-1]
        ratio = self.size[1] / width, self.size[0] / height
        x, y = (r * (flow[:, i] - target[0][:, i]) for i, r in enumerate(ratio))
        error = end_point_error(torch.stack([x, y], 1), torch.zeros_like(target[0]))
        return torch.where(target[1], error, 0.0).sum()

    def state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        tensors = [*self.network.state_dict().values(), *self.average.state_dict().values()]
        for parameter in self.parameters:
            tensors += self.optimizer.state[parameter].values()
        return [*tensors, self.totals, self.skipped]

    def read(self) -> dict[str, float]:
        """Means of the metrics since the last call, and all skipped steps; waits for the device."""
        *sums, count = self.totals.tolist()
        self.totals.zero_()
        means = {name: value / count if count else float("nan") for name, value in zip(METRICS, sums, strict=True)}
        return means | {"skipped": int(self.skipped)}


def autocast_dtype(config: TrainConfig, device: torch.device) -> torch.dtype | None:
    """The 16-bit type that a run's networks work in, `None` for float32."""
    bf16 = config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if bf16 else None


def iterations(network: MatchingNetwork, config: TrainConfig) -> dict[str, Any]:
    """Numbers of GOCor's iterations in training, as networks take them."""
    iters_global = config.iters_global if network.has_global_layer else None
    return {"iters_local": config.iters_local, "iters_global": iters_global}


def uses_channels_last(config: TrainConfig, device: torch.device) -> bool:
    """Whether networks and images lie channels last in memory."""
    return device.type == "cuda" if config.channels_last is None else config.channels_last


def checkpoint_activations(network: MatchingNetwork) -> None:
    """Let the correlation layers, most of whose memory GOCor's iterations take, be computed again in the backward."""
    for module in network.correlation_layers():
        _recompute(module)


def _recompute(module: nn.Module) -> None:
    plain = module.forward

    def forward(*inputs: Tensor | int | None) -> Tensor:
        return checkpoint(plain, *inputs, use_reentrant=False, preserve_rng_state=False)  # nothing in it is random

    module.forward = forward
