"""AdamW whose steps can be skipped on the device, and the EMA update."""

from typing import Any

import torch
from torch import Tensor, nn

from ..modules.gocor import GOCor
from .config import TrainConfig


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Trainable parameters in two groups, with and without weight decay.

    Parameters with fewer than two dimensions (biases, batch normalisation) do not decay, nor do the parameters of GOCor
    modules: decay of their step length, regulariser and distance functions would change the method.
    """
    gocor = {id(p) for m in network.modules() if isinstance(m, GOCor) for p in m.parameters()}
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in network.parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and id(parameter) not in gocor else others).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def build_optimizer(network: nn.Module, config: TrainConfig, lr: Tensor) -> torch.optim.AdamW:
    """Fused AdamW with its state allocated.

    Args:
        network: whose trainable parameters are optimised.
        config: options of the run.
        lr: the learning rate, a scalar tensor on the parameters' device. It is read at each step, so that a CUDA graph
            sees changes of it.
    """
    groups = [group for group in parameter_groups(network, config.weight_decay) if group["params"]]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=config.betas, fused=True, capturable=lr.is_cuda)
    parameters = [p for group in groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    take_step(optimizer, skip=torch.ones_like(lr))  # AdamW allocates its state in its first step
    for parameter in parameters:
        parameter.grad = None
    return optimizer


def take_step(optimizer: torch.optim.Optimizer, *, skip: Tensor) -> None:
    """Take an optimiser step, or none if the scalar float32 tensor `skip` is 1. It is not read back to the host."""
    optimizer.found_inf = skip  # type: ignore[attr-defined]  # the interface of torch's GradScaler
    optimizer.step()


@torch.no_grad()
def update_average(average: list[Tensor], values: list[Tensor], weight: Tensor) -> None:
    """`average += weight · (values − average)` in place, for lists of tensors."""
    difference = torch._foreach_sub(values, average)
    torch._foreach_mul_(difference, weight)
    torch._foreach_add_(average, difference)
