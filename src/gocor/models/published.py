"""Loading of published checkpoints and of torchvision's VGG-16."""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..utils.errors import InputError
from .backbones import VGGPyramid
from .network import MatchingNetwork
from .published_names import Rule


def translate_published(network: MatchingNetwork, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """A published state dict with our names and shapes, and the published keys that no parameter matches."""
    own = network.state_dict()
    translated: dict[str, Tensor] = {}
    unexpected: list[str] = []
    for key, value in state.items():
        name = translate_name(key, network.published_rules)
        if name not in own or name in translated:
            unexpected.append(key)
            continue
        if key.startswith("NeighConsensus") and key.endswith("weight"):
            value = value.movedim(0, 2)  # The kernel's first axis is stored in front.
        if value.numel() != own[name].numel():
            raise InputError(
                f"{key} should have {tuple(own[name].shape)} values, the checkpoint has {tuple(value.shape)}"
            )
        translated[name] = value.reshape(own[name].shape)
    return translated, unexpected


def load_published_state(network: MatchingNetwork, state: Mapping[str, Tensor]) -> None:
    """Load a published state dict into a network, and switch it to published rules.

    Every key must match a parameter, and every parameter a key. Otherwise an error names those without a match, and the
    network is not changed.
    """
    translated, unexpected = translate_published(network, state)
    own = network.state_dict()
    missing = sorted(name for name in own.keys() - translated.keys() if not name.endswith("num_batches_tracked"))
    if missing or unexpected:
        raise InputError(
            f"not a checkpoint of this network: {_list('unexpected', unexpected)}, {_list('missing', missing)}"
        )
    network.load_state_dict(own | translated)
    network.use_published_rules()


def load_vgg(pyramid: VGGPyramid, state: Mapping[str, Tensor]) -> None:
    """Load torchvision's VGG-16 into a pyramid (keys `features.N.weight` and `.bias`; the classifier is ignored)."""
    layers = [layer for level in pyramid.children() for layer in level.children() if isinstance(layer, nn.Conv2d)]
    numbers = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21)  # Indices of torchvision's convolutions up to conv4_3.
    with torch.no_grad():
        for number, layer in zip(numbers, layers, strict=True):
            for leaf in ("weight", "bias"):
                key = f"features.{number}.{leaf}"
                if key not in state:
                    raise InputError(f"not a VGG-16 checkpoint: {key} is missing")
                getattr(layer, leaf).copy_(state[key])


def translate_name(key: str, rules: Sequence[Rule]) -> str | None:
    """Our name of a published parameter; `None` if no rule is for it."""
    for pattern, replacement in rules:
        match = re.fullmatch(pattern, key)
        if match:
            return match.expand(replacement) if isinstance(replacement, str) else replacement(match)
    return None


def _list(what: str, keys: list[str]) -> str:
    """The number of keys and the first four of them, for an error."""
    shown = ", ".join(keys[:4]) + (", …" if len(keys) > 4 else "")
    return f"{len(keys)} {what}" + (f" ({shown})" if keys else "")
