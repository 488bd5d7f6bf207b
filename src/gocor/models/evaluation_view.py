"""Views of a network in evaluation mode or in another precision. The network itself does not change."""

from copy import copy
from typing import Literal, TypeVar

import torch
from torch import nn

from ..utils.precision import cpu_multiplies_bfloat16
from .network import MatchingNetwork

Precision = Literal["bf16", "float32"]
"""Precision of convolutions: bfloat16 by autocast, or that of the weights."""

Module = TypeVar("Module", bound=nn.Module)


def in_evaluation_mode(network: Module) -> Module:
    """The network itself if all its modules are in evaluation mode, otherwise a view of it in evaluation mode.

    The view has its own modules, which share parameters, buffers and hooks with those of the network, so it takes
    almost no memory. The network keeps its mode: another thread may train it or match with it at the same time. Weights
    that are loaded into the network later, or replaced in it, are the view's too.
    """
    if not any(module.training for module in network.modules()):
        return network
    return _view(network, {})


def in_precision(network: MatchingNetwork, precision: Precision | None) -> MatchingNetwork:
    """The network itself if its convolutions have this precision, otherwise a view of it that shares all modules.

    Args:
        network: a network on any device.
        precision: `None` takes bfloat16 on a CPU that has instructions for it, if the network is as accurate with it
            (`MatchingNetwork.suits_bfloat16`), and the network's own precision otherwise.
    """
    if precision is None:
        chosen = torch.bfloat16 if _is_faster_in_bfloat16(network) else network.autocast_dtype
    else:
        chosen = torch.bfloat16 if precision == "bf16" else None
    if chosen == network.autocast_dtype:
        return network
    view = copy(network)
    view.autocast_dtype = chosen
    return view


def _is_faster_in_bfloat16(network: MatchingNetwork) -> bool:
    """Whether the network is faster in bfloat16 and as accurate."""
    weight = next(network.parameters(), torch.empty(0))
    if not network.suits_bfloat16 or network.published or network.autocast_dtype is not None:
        return False
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and cpu_multiplies_bfloat16()


def _view(module: Module, made: dict[int, nn.Module]) -> Module:
    """A copy of a module and its submodules. `made` has the copies by id of the original, which may be shared."""
    if id(module) in made:
        return made[id(module)]  # type: ignore[return-value]
    twin = type(module).__new__(type(module))
    made[id(module)] = twin
    inside = {name: None if child is None else _view(child, made) for name, child in module._modules.items()}
    # Both modules have the same dictionaries of parameters and buffers, so a replaced tensor is replaced in both.
    twin.__dict__.update(module.__dict__, _modules=inside, training=False)
    return twin
