"""AdamW whose steps can be skipped on the device, and the moving average of a network."""

from typing import Any

import torch
from torch import Tensor, nn

from ..modules.gocor import GOCor
from .config import TrainConfig


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Trainable parameters in two groups: weights of layers, which decay, and the rest, which do not.

    The rest is what has fewer than two dimensions (biases, batch normalisation) and all that GOCor modules learn:
    pulling their step length, regulariser and distance functions towards zero would change the method.
    """
    gocor = {id(p) for m in network.modules() if isinstance(m, GOCor) for p in m.parameters()}
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in network.parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and id(parameter) not in gocor else others).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def build_optimizer(network: nn.Module, config: TrainConfig, lr: Tensor) -> torch.optim.AdamW:
    """Fused AdamW that reads its rate from a tensor on the parameters' device, its state made already.

    Setting its attribute `found_inf` to a tensor that holds 1 makes a step change nothing; no value is read back to
    the host for it.
    """
    groups = [group for group in parameter_groups(network, config.weight_decay) if group["params"]]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=config.betas, fused=True, capturable=lr.is_cuda)
    parameters = [p for group in groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    take_step(optimizer, skip=torch.ones_like(lr))  # makes the state: AdamW does so in its first step
    for parameter in parameters:
        parameter.grad = None
    return optimizer


def take_step(optimizer: torch.optim.Optimizer, *, skip: Tensor) -> None:
    """One step, or none where `skip`, a scalar float32 tensor, holds 1."""
    optimizer.found_inf = skip  # type: ignore[attr-defined]  # what fused optimisers and torch's GradScaler agree on
    optimizer.step()


@torch.no_grad()
def update_average(average: list[Tensor], values: list[Tensor], weight: Tensor) -> None:
    """`average += weight · (values − average)`, in place, whole lists at a time."""
    difference = torch._foreach_sub(values, average)
    torch._foreach_mul_(difference, weight)
    torch._foreach_add_(average, difference)
