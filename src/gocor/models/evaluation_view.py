"""A network in evaluation mode without a change of the network itself."""

from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def in_evaluation_mode(network: Module) -> Module:
    """The network itself if all its modules are in evaluation mode, and otherwise a view of it that is.

    The view has modules of its own that share parameters, buffers and hooks with the network's. Making it takes no
    memory to speak of, and the network never leaves the mode that it is in: another thread may train it or match with
    it meanwhile. Weights that are loaded into the network, or replaced in it, are the view's as well.
    """
    if not any(module.training for module in network.modules()):
        return network
    return _view(network, {})


def _view(module: Module, made: dict[int, nn.Module]) -> Module:
    """A copy of a module and of those inside it; `made` holds the copies by the original, which may be shared."""
    if id(module) in made:
        return made[id(module)]  # type: ignore[return-value]
    twin = type(module).__new__(type(module))
    made[id(module)] = twin
    inside = {name: None if child is None else _view(child, made) for name, child in module._modules.items()}
    # The dictionaries of parameters and buffers are the module's own, so that a replaced tensor is replaced here too.
    twin.__dict__.update(module.__dict__, _modules=inside, training=False)
    return twin
