"""AdamW whose steps can be skipped on the device, and the EMA update."""

from typing import Any

import torch
from torch import Tensor, nn

from ..modules.gocor import GOCor
from .config import TrainConfig


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Trainable parameters, grouped by weight decay and by their factor of the learning rate.

    Parameters with fewer than two dimensions (biases, batch normalisation) do not decay, nor do the parameters of GOCor
    modules: decay of their step length, regulariser and distance functions would change the method. Factors of the
    learning rate are a fact that a network states about its parts (`MatchingNetwork.learning_rate_factors`).
    """
    gocor = {id(p) for m in network.modules() if isinstance(m, GOCor) for p in m.parameters()}
    factors: dict[str, float] = getattr(network, "learning_rate_factors", {})
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            decay = weight_decay if parameter.ndim >= 2 and id(parameter) not in gocor else 0.0
            factor = next((value for prefix, value in factors.items() if name.startswith(prefix)), 1.0)
            groups.setdefault((decay, factor), []).append(parameter)
    ordered = sorted(groups.items(), key=lambda item: (-item[0][0], -item[0][1]))
    return [{"params": p, "weight_decay": decay, "lr_factor": factor} for (decay, factor), p in ordered]


def build_optimizer(network: nn.Module, config: TrainConfig, lr: Tensor) -> torch.optim.AdamW:
    """Fused AdamW with its state allocated.

    Args:
        network: the network whose trainable parameters are optimised.
        config: options of the run.
        lr: the learning rate, a scalar tensor on the parameters' device. It is read at each step, so that a CUDA graph
            sees changes of it; see `set_learning_rate`.
    """
    groups = parameter_groups(network, config.weight_decay)
    for group in groups:
        group["lr"] = lr if group["lr_factor"] == 1 else torch.zeros_like(lr)
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=config.betas, fused=True, capturable=lr.is_cuda)
    parameters = [p for group in groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    take_step(optimizer, skip=torch.ones_like(lr))  # AdamW allocates its state in its first step
    for parameter in parameters:
        parameter.grad = None
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group, in place."""
    for group in optimizer.param_groups:
        group["lr"].fill_(lr * group["lr_factor"])


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
