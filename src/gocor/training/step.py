"""One training step as a function of fixed tensors: the same code runs eagerly and inside a CUDA graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..data.synthetic.batch import PairBatch
from ..models.network import MatchingNetwork
from ..models.outputs import Outputs
from ..ops.warp import inside_mask
from ..utils.errors import InputError
from .config import TrainConfig
from .distributed import Group
from .losses import confidence_loss, end_point_error, known_pixels, loss_rule, multi_level_loss
from .optimizer import build_optimizer, set_learning_rate, take_step, update_average
from .targets import level_target

Function = TypeVar("Function", bound=Callable[..., Any])
METRICS = ("loss", "epe", "grad_norm")


@dataclass(frozen=True)
class Buffers:
    """Inputs of a step, at fixed addresses.

    Attributes:
        reference: `(B, 3, H, W)`, RGB in [0, 255].
        query: `(B, 3, H, W)`, likewise.
        flow: ground truth `(B, 2, H, W)`.
        mask: `(B, 1, H, W)` bool, pixels whose flow counts in the loss.
        visible: `(B, 1, H, W)` bool, pixels that the query shows.
        hidden: `(B, 1, H, W)` bool, pixels that the query does not show. The rest is unknown.
        lr: learning rate, a scalar.
        ema_weight: weight of the new values in the EMA update, a scalar.
    """

    reference: Tensor
    query: Tensor
    flow: Tensor
    mask: Tensor
    visible: Tensor
    hidden: Tensor
    lr: Tensor
    ema_weight: Tensor


class TrainStep:
    """Forward pass, loss, backward pass, gradient clipping, optimiser step and EMA update.

    A step whose gradient is not finite changes nothing and is counted. No value is read back to the host: sums of the
    metrics stay on the device until `read` is called.

    Args:
        network: the network to train.
        average: a network of the same kind, which holds the EMA of the weights.
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
        self.origin = ""  # what the network started from, in words
        self.size = height, width
        units = network.level_units(*self.size)
        self.rule = loss_rule(config, network, len(units))
        self.units = units[: len(self.rule.weights)]
        self.autocast_dtype = autocast_dtype(config, device)
        self.outputs = _compiled(network.outputs, config)
        self.multi_level_loss = _compiled(multi_level_loss, config)
        self.confidence_loss = _compiled(confidence_loss, config)
        self.buffers = Buffers(
            reference=torch.zeros(batch, 3, height, width, device=device),
            query=torch.zeros(batch, 3, height, width, device=device),
            flow=torch.zeros(batch, 2, height, width, device=device),
            mask=torch.zeros(batch, 1, height, width, dtype=torch.bool, device=device),
            visible=torch.zeros(batch, 1, height, width, dtype=torch.bool, device=device),
            hidden=torch.zeros(batch, 1, height, width, dtype=torch.bool, device=device),
            lr=torch.zeros((), device=device),
            ema_weight=torch.zeros((), device=device),
        )
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.batch_statistics = list(network.buffers())
        self.optimizer = build_optimizer(network, config, self.buffers.lr)
        self.totals = torch.zeros(len(METRICS) + 1, device=device)  # sums of the metrics, and the number of steps
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        names = [name for name, p in network.named_parameters() if p.requires_grad]
        names += [name for name, b in network.named_buffers() if b.is_floating_point()]
        self.values, self.averages = ([n.state_dict()[name] for name in names] for n in (network, average))

    def load(self, pairs: PairBatch, *, lr: float, ema_weight: float) -> None:
        """Copy a batch into the buffers.

        Unknown flow is masked out; occluded flow too, unless `count_occluded` is set. Flow that leaves the query is
        occluded in crops of data sets, and in synthetic pairs up to `Preset.leaving`; beyond, it is unknown.
        """
        buffers = self.buffers
        if pairs.reference.shape != buffers.reference.shape:
            raise InputError(f"expected images {tuple(buffers.reference.shape)}, got {tuple(pairs.reference.shape)}")
        buffers.reference.copy_(pairs.reference, non_blocking=True)
        buffers.query.copy_(pairs.query, non_blocking=True)
        buffers.flow.copy_(pairs.flow, non_blocking=True)
        mask = pairs.valid | pairs.occluded if self.config.count_occluded else pairs.valid & ~pairs.occluded
        buffers.mask.copy_(mask, non_blocking=True)
        buffers.visible.copy_(pairs.valid, non_blocking=True)
        leaves = pairs.flow.isfinite().all(1, keepdim=True) & ~inside_mask(pairs.flow, self.size)
        buffers.hidden.copy_(pairs.occluded | leaves, non_blocking=True)
        set_learning_rate(self.optimizer, lr)
        buffers.ema_weight.fill_(ema_weight)

    def compute(self) -> None:
        """Take a step with the content of the buffers."""
        for parameter in self.parameters:
            parameter.grad = None
        statistics = [b.clone() for b in self.batch_statistics]  # to restore them if the forward pass overflows
        flows, confidence = self.forward()
        targets = self.targets(flows)
        counts = self.group.sum_(known_pixels(targets))
        loss = self.multi_level_loss(flows, targets, self.rule, counts)
        if confidence is not None:
            b = self.buffers
            count = self.group.sum_((b.visible | b.hidden).sum(dtype=torch.float32))
            loss = loss + self.confidence_loss(confidence, flows[-1], b.flow, b.visible, b.hidden, count)
        loss.backward()
        self.group.sum_gradients(self.parameters)
        with torch.no_grad():
            norm = nn.utils.clip_grad_norm_(self.parameters, self.config.clip or float("inf"))
            failed = ~norm.isfinite()
            take_step(self.optimizer, skip=failed.float())
            for old, new in zip(statistics, self.batch_statistics, strict=True):
                new.copy_(torch.where(failed, old, new))
            update_average(self.averages, self.values, self.buffers.ema_weight * ~failed)
            epe = self.fine_error(flows[-1], targets[-1]) / counts[-1].clamp(min=1)
            loss_and_epe = self.group.sum_(torch.stack([loss.detach(), epe]))
            metrics = torch.stack([*loss_and_epe.unbind(), norm, torch.ones_like(norm)])
            self.totals.add_(torch.where(failed, 0.0, metrics))
            self.skipped.add_(failed)

    def targets(self, flows: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """True flow and mask of each level; levels with the same grid and unit share them."""
        keys = [((flow.shape[2], flow.shape[3]), unit) for flow, unit in zip(flows, self.units, strict=True)]
        distinct = {key: level_target(self.buffers.flow, self.buffers.mask, *key) for key in dict.fromkeys(keys)}
        return [distinct[key] for key in keys]

    def forward(self) -> Outputs:
        """Flows of the levels that have a loss weight, coarse to fine, and the logits of the confidence if any."""
        images = self.network.prepare(self.buffers.reference, self.buffers.query, self.network.working_size(*self.size))
        if uses_channels_last(self.config, self.group.device):
            images = tuple(image.contiguous(memory_format=torch.channels_last) for image in images)
        dtype = self.autocast_dtype
        with torch.autocast(self.group.device.type, dtype=dtype, enabled=dtype is not None):
            return self.outputs(*images, **iterations(self.network, self.config), count=len(self.units))

    def fine_error(self, flow: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
        """Sum of the finest level's end-point errors over its known pixels, in pixels of the training images."""
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
        """Means of the metrics since the last call, and the number of skipped steps so far. Waits for the device."""
        *sums, count = self.totals.tolist()
        self.totals.zero_()
        means = {name: value / count if count else float("nan") for name, value in zip(METRICS, sums, strict=True)}
        return means | {"skipped": int(self.skipped)}


def _compiled(function: Function, config: TrainConfig) -> Function:
    return cast(Function, torch.compile(function, dynamic=False)) if config.compile else function


def autocast_dtype(config: TrainConfig, device: torch.device) -> torch.dtype | None:
    """The dtype of autocast in a run, `None` for float32."""
    bf16 = config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if bf16 else None


def iterations(network: MatchingNetwork, config: TrainConfig) -> dict[str, Any]:
    """The options of `MatchingNetwork.forward` for the number of GOCor iterations in training."""
    iters_global = config.iters_global if network.has_global_layer else None
    return {"iters_local": config.iters_local, "iters_global": iters_global}


def uses_channels_last(config: TrainConfig, device: torch.device) -> bool:
    """Whether networks and images are in the channels-last memory format."""
    return device.type == "cuda" if config.channels_last is None else config.channels_last


def checkpoint_activations(network: MatchingNetwork) -> None:
    """Recompute the correlation layers in the backward pass; GOCor's iterations take most of a network's memory."""
    for module in network.correlation_layers():
        _recompute(module)


def _recompute(module: nn.Module) -> None:
    plain_forward = module.forward

    def forward(*inputs: Tensor | int | None) -> Tensor:
        return checkpoint(plain_forward, *inputs, use_reentrant=False, preserve_rng_state=False)  # it is not random

    module.forward = forward
