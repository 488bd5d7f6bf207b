"""A view of a network in evaluation mode. The network itself does not change."""

from typing import TypeVar

from torch import nn

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
