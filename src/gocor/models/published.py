"""Published checkpoints: their parameter names, translated to ours.

Covers the published GLU-Net, Semantic-GLU-Net, BaseNet and PWC-Net families with and without GOCor, NVIDIA's PWC-Net
(the same names) and torchvision's VGG-16.
"""

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ..modules.gocor import PUBLISHED_NAMES
from .backbones import VGGPyramid
from .basenet import BaseNet
from .glunet import GLUNet
from .network import MatchingNetwork
from .pwcnet import PWCNet

Rule = tuple[str, str | Callable[[re.Match[str]], str]]

_VGG_DECODERS: list[Rule] = [
    (r"pyramid\.(.*)", r"pyramid.\1"),
    (r"decoder4\.conv(\d)\.(.*)", r"decoder4.convs.\1.\2"),
    (r"decoder4\.final\.(.*)", r"decoder4.predict.\1"),
    (r"decoder(\d)\.conv_(\d)\.(.*)", r"decoder\1.convs.\2.\3"),
    (r"decoder(\d)\.predict_flow\.(.*)", r"decoder\1.predict.\2"),
    (r"(upfeat\d\..*)", r"\1"),
    (r"deconv(\d)\.(.*)", r"upflow\1.\2"),
    (r"corr\.corr_module\.(filter_.*)", lambda m: f"global_matching.correlation.{PUBLISHED_NAMES.get(m[1], m[1])}"),
    (r"local_corr\.(filter_.*)", lambda m: f"local_matching.correlation.{PUBLISHED_NAMES.get(m[1], m[1])}"),
    (r"NeighConsensus\.conv\.(\d)\.(.*)", lambda m: f"global_matching.consensus.convs.{int(m[1]) // 2}.{m[2]}"),
]


def _context(published: str, ours: str) -> list[Rule]:
    return [
        (rf"{published}([1-6])\.(.*)", lambda m: f"{ours}.convs.{int(m[1]) - 1}.{m[2]}"),
        (rf"{published}7\.(.*)", rf"{ours}.predict.\1"),
    ]


def _pwc_level(m: re.Match[str]) -> str:
    # Three convolutions a level, in this order; the sixth level's names start with the middle one.
    order = ("aa", "a", "b") if m[1] == "6" else ("a", "aa", "b")
    return f"pyramid.levels.{int(m[1]) - 1}.{order.index(m[2])}.{m[3]}"


def _pwc(ours: str) -> Callable[[re.Match[str]], str]:
    """Levels 6 to 2 are our entries 0 to 4."""
    return lambda m: ours.format(6 - int(m[1]), *m.groups()[1:])


RULES: dict[type[MatchingNetwork], list[Rule]] = {
    GLUNet: [*_VGG_DECODERS, *_context("dc_conv", "context3"), *_context("l_dc_conv", "context1")],
    BaseNet: [*_VGG_DECODERS, *_context("dc_conv", "context2")],
    PWCNet: [
        (r"conv(\d)(aa|a|b)\.(.*)", _pwc_level),
        (r"conv(\d)_(\d)\.(.*)", _pwc("decoders.{}.convs.{}.{}")),
        (r"predict_flow(\d)\.(.*)", _pwc("decoders.{}.predict.{}")),
        (r"deconv(\d)\.(.*)", _pwc("upflow.{}.{}")),
        (r"upfeat(\d)\.(.*)", _pwc("upfeat.{}.{}")),
        *_context("dc_conv", "context"),
        (
            r"local_corr_(\d)\.(filter_.*)",
            lambda m: f"matching.{6 - int(m[1])}.correlation.{PUBLISHED_NAMES.get(m[2], m[2])}",
        ),
    ],
}


def load_published_state(network: MatchingNetwork, state: Mapping[str, Tensor]) -> None:
    """Fill a network from a published state dict, and make it behave as published code does.

    Every key must find its place and every place must be filled; otherwise a `ValueError` names them and the network
    is left as it was.
    """
    rules = next(rules for kind, rules in RULES.items() if isinstance(network, kind))
    own = network.state_dict()
    translated: dict[str, Tensor] = {}
    unexpected: list[str] = []
    for key, value in state.items():
        name = _translate(key, rules)
        if name not in own or name in translated:
            unexpected.append(key)
            continue
        if key.startswith("NeighConsensus") and key.endswith("weight"):
            value = value.movedim(0, 2)  # stored with the kernel's first axis in front
        if value.numel() != own[name].numel():
            raise ValueError(
                f"{key} should have {tuple(own[name].shape)} values, the checkpoint has {tuple(value.shape)}"
            )
        translated[name] = value.reshape(own[name].shape)
    missing = sorted(name for name in own.keys() - translated.keys() if not name.endswith("num_batches_tracked"))
    if missing or unexpected:
        raise ValueError(
            f"not a checkpoint of this network: {_list('unexpected', unexpected)}, {_list('missing', missing)}"
        )
    network.load_state_dict(own | translated)
    network.use_published_rules()


def load_vgg(pyramid: VGGPyramid, state: Mapping[str, Tensor]) -> None:
    """Fill the pyramid from torchvision's VGG-16 (keys `features.N.weight` and `.bias`; its classifier is ignored)."""
    layers = [layer for level in pyramid.children() for layer in level.children() if isinstance(layer, nn.Conv2d)]
    numbers = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21)  # of torchvision's convolutions up to conv4_3
    with torch.no_grad():
        for number, layer in zip(numbers, layers, strict=True):
            for leaf in ("weight", "bias"):
                key = f"features.{number}.{leaf}"
                if key not in state:
                    raise ValueError(f"not a VGG-16 checkpoint: {key} is missing")
                getattr(layer, leaf).copy_(state[key])


def _translate(key: str, rules: list[Rule]) -> str | None:
    for pattern, replacement in rules:
        match = re.fullmatch(pattern, key)
        if match:
            return match.expand(replacement) if isinstance(replacement, str) else replacement(match)
    return None


def _list(what: str, keys: list[str], most: int = 4) -> str:
    shown = ", ".join(keys[:most]) + (", …" if len(keys) > most else "")
    return f"{len(keys)} {what}" + (f" ({shown})" if keys else "")
