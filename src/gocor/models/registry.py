"""The networks by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from ..modules import GlobalFeatureCorrelation, GlobalGOCor, LocalFeatureCorrelation, LocalGOCor
from ..utils.errors import InputError, InputTypeError
from . import zoo
from .basenet import BaseNet
from .glunet import GLUNet
from .network import MatchingNetwork
from .pwcnet import PWCNet
from .recurrent import RecurrentNet

Builder = TypeVar("Builder", bound=Callable[[], MatchingNetwork])


@dataclass(frozen=True)
class ModelEntry:
    """A network that can be created by name."""

    name: str
    description: str
    build: Callable[[], MatchingNetwork]


REGISTRY: dict[str, ModelEntry] = {}

TINY = 1 / 8  # Width of the small variants, which keep tests fast.
TINY_PYRAMID = (4, 4, 8, 8, 12, 12)


def register(name: str, description: str) -> Callable[[Builder], Builder]:
    """Decorator that registers a network for `load_model`, `gocor.match`, training, evaluation and the command line.

    It decorates a function without arguments that returns a `MatchingNetwork`, or a class whose constructor takes no
    arguments; see `docs/extending.md`::

        @gocor.models.register("mynet-gocor", "my network with local GOCor")
        def mynet_gocor() -> MatchingNetwork:
            return MyNet(LocalGOCor())

    Args:
        name: unique name of the network. Names that end in `-tiny` are for tests and are not listed.
        description: one line for `gocor models`.
    """

    def enter(build: Builder) -> Builder:
        if name in REGISTRY:
            raise InputError(f"a model named {name!r} is registered already")
        REGISTRY[name] = ModelEntry(name, description, build)
        return build

    return enter


def list_models(*, tiny: bool = False, shipped: bool = False) -> list[str]:
    """Names of the networks.

    Args:
        tiny: include the small variants for tests.
        shipped: only the networks whose trained weights ship.
    """
    names = [name for name in REGISTRY if tiny or not name.endswith("-tiny")]
    return [name for name in names if name in zoo.shipped()] if shipped else names


def create_model(name: str) -> MatchingNetwork:
    """A network with initial values, in evaluation mode; `load_model` returns one with trained weights."""
    if not isinstance(name, str):
        raise InputTypeError(f"the name of a model must be a string, got {type(name).__name__}")
    if name not in REGISTRY:
        raise InputError(f"no model is named {name!r}; there are {', '.join(list_models())}")
    network = REGISTRY[name].build()
    network.name = name
    return network.eval()


def sketch(name: str) -> MatchingNetwork:
    """A network whose parameters have no storage, to read its facts."""
    with torch.device("meta"):
        return create_model(name)


def _five(layer: Callable[[], nn.Module]) -> list[nn.Module]:
    return [layer() for _ in range(5)]


@register("basenet", "BaseNet with plain correlations (ablation I)")
def _basenet() -> MatchingNetwork:
    return BaseNet(GlobalFeatureCorrelation(), LocalFeatureCorrelation())


@register("basenet-nc", "BaseNet with NC-Net's consensus after the global correlation (ablation II)")
def _basenet_nc() -> MatchingNetwork:
    return BaseNet(GlobalFeatureCorrelation(), LocalFeatureCorrelation(), filtering="consensus")


@register("basenet-global-linear", "BaseNet, global GOCor with the quadratic objective (ablation III)")
def _basenet_global_linear() -> MatchingNetwork:
    layer = GlobalGOCor(512, query_objective=False, reference_objective="quadratic")
    return BaseNet(layer, LocalFeatureCorrelation(), activation="leaky-relu")


@register("basenet-global-r", "BaseNet, global GOCor with the reference objective (ablation IV)")
def _basenet_global_r() -> MatchingNetwork:
    return BaseNet(GlobalGOCor(512, query_objective=False), LocalFeatureCorrelation(), activation="leaky-relu")


@register("basenet-global-rq", "BaseNet, global GOCor with reference and query objective (ablation V)")
def _basenet_global_rq() -> MatchingNetwork:
    return BaseNet(GlobalGOCor(512), LocalFeatureCorrelation(), activation="leaky-relu")


@register("basenet-gocor", "BaseNet, global and local GOCor (ablation VI)")
def _basenet_gocor() -> MatchingNetwork:
    return BaseNet(GlobalGOCor(512), LocalGOCor(), activation="leaky-relu")


@register("basenet-gocor-lq", "BaseNet-GOCor with the query objective in the local module too")
def _basenet_gocor_lq() -> MatchingNetwork:
    return BaseNet(GlobalGOCor(512), LocalGOCor(query_objective=True), activation="leaky-relu")


@register("glunet", "GLU-Net with plain correlations")
def _glunet() -> MatchingNetwork:
    return GLUNet(GlobalFeatureCorrelation(), LocalFeatureCorrelation())


@register("glunet-gocor", "GLU-Net with global and local GOCor: the default")
def _glunet_gocor() -> MatchingNetwork:
    return GLUNet(GlobalGOCor(512), LocalGOCor(), filtering="none", activation="leaky-relu")


@register("semantic-glunet", "Semantic-GLU-Net with plain correlations")
def _semantic_glunet() -> MatchingNetwork:
    return GLUNet(GlobalFeatureCorrelation(), LocalFeatureCorrelation(), filtering="consensus", semantic=True)


@register("semantic-glunet-gocor", "Semantic-GLU-Net with global and local GOCor")
def _semantic_glunet_gocor() -> MatchingNetwork:
    return GLUNet(GlobalGOCor(1024), LocalGOCor(), filtering="none", activation="leaky-relu", semantic=True)


@register("pwcnet", "PWC-Net with plain correlations")
def _pwcnet() -> MatchingNetwork:
    return PWCNet(_five(LocalFeatureCorrelation))


@register("pwcnet-gocor", "PWC-Net with local GOCor at every level")
def _pwcnet_gocor() -> MatchingNetwork:
    return PWCNet(_five(LocalGOCor))


@register("recurrent", "Recurrent updates on plain features")
def _recurrent() -> MatchingNetwork:
    return RecurrentNet(None, None)


@register("recurrent-gocor", "Recurrent updates on GOCor filters, which are optimised once and looked up many times")
def _recurrent_gocor() -> MatchingNetwork:
    start = GlobalGOCor(128, initializer="simple", query_objective=False, regularizer="relative")
    return RecurrentNet(LocalGOCor(regularizer="relative"), start)


@register("recurrent-gocor-tiny", "small, for tests")
def _recurrent_gocor_tiny() -> MatchingNetwork:
    start = GlobalGOCor(16, initializer="simple", query_objective=False, regularizer="relative")
    return RecurrentNet(
        LocalGOCor(2, regularizer="relative"), start, channels=16, hidden=16, radius=2, scales=2, width=TINY
    )


@register("basenet-gocor-tiny", "small, for tests")
def _basenet_gocor_tiny() -> MatchingNetwork:
    return BaseNet(GlobalGOCor(64), LocalGOCor(2), activation="leaky-relu", radius=2, width=TINY)


@register("glunet-tiny", "small, for tests")
def _glunet_tiny() -> MatchingNetwork:
    return GLUNet(GlobalFeatureCorrelation(), LocalFeatureCorrelation(2), radius=2, width=TINY)


@register("glunet-gocor-tiny", "small, for tests")
def _glunet_gocor_tiny() -> MatchingNetwork:
    layers = GlobalGOCor(64), LocalGOCor(2)
    return GLUNet(*layers, filtering="none", activation="leaky-relu", radius=2, width=TINY)


@register("semantic-glunet-tiny", "small, for tests")
def _semantic_glunet_tiny() -> MatchingNetwork:
    layers = GlobalFeatureCorrelation(), LocalFeatureCorrelation(2)
    return GLUNet(*layers, filtering="consensus", semantic=True, radius=2, width=TINY)


@register("pwcnet-gocor-tiny", "small, for tests")
def _pwcnet_gocor_tiny() -> MatchingNetwork:
    return PWCNet(_five(lambda: LocalGOCor(2)), channels=TINY_PYRAMID, radius=2, width=TINY)
