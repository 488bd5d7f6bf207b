"""The network of a run, its EMA, and the step that trains it."""

import copy
import warnings

import torch
from torch import nn

from ..models.network import MatchingNetwork
from ..models.weights import UntrainedWarning, load_model
from .checkpoint import start_network
from .config import TrainConfig
from .distributed import Group
from .step import TrainStep, checkpoint_activations, uses_channels_last


def build_step(config: TrainConfig, group: Group, *, resumed: bool = False) -> TrainStep:
    """The training step of a new run, or of a resumed one, which does not load the weights of `init` again."""
    torch.manual_seed(config.seed)
    origin = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrainedWarning)
        network = load_model(config.model, None, options=config.network, device="cpu")
        if config.init is not None and not resumed:
            origin = f"{config.init}: {start_network(network, config.init)}"
    if group.world_size > 1 and group.device.type == "cuda":
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    network.to(group.device)
    group.broadcast_weights(network)
    if uses_channels_last(config, group.device):
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = _average_of(network)
    if config.activation_checkpointing:
        checkpoint_activations(network)
    shape = (config.batch // group.world_size, *config.size)
    step = TrainStep(network.train(), average, config, group, shape)
    step.origin = origin
    return step


def _average_of(network: MatchingNetwork) -> MatchingNetwork:
    """A copy that holds the EMA of the weights. Frozen parameters are shared with the network."""
    frozen = {id(p): p for p in network.parameters() if not p.requires_grad}
    return copy.deepcopy(network, frozen).requires_grad_(False).eval()
