"""The networks by name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from ..modules import GlobalGOCor
from ..utils.errors import InputError, InputTypeError
from . import zoo
from .basenet import BaseNet
from .glunet import GLUNet
from .liteflownet import LiteFlowNet
from .network import MatchingNetwork
from .pwcnet import PWCNet
from .recurrent import RecurrentNet
from .variants import Layers

Builder = TypeVar("Builder", bound=Callable[..., MatchingNetwork])


@dataclass(frozen=True)
class ModelEntry:
    """A network that can be created by name.

    Attributes:
        name: see `register`.
        description: see `register`.
        build: returns the network, given its layers.
        base: name of the network that only differs in its correlation layers. Training may start from its weights.
    """

    name: str
    description: str
    build: Callable[[Layers], MatchingNetwork]
    base: str | None = None


REGISTRY: dict[str, ModelEntry] = {}

TINY = {"width": 1 / 8, "local.radius": 2}  # Options of the small variants, which keep tests fast.


def register(name: str, description: str, *, base: str | None = None) -> Callable[[Builder], Builder]:
    """Decorator that registers a network for `load_model`, `gocor.match`, training, evaluation and the command line.

    It decorates a function that returns a `MatchingNetwork`, or a class of that kind; see `docs/extending.md`. The
    function takes no argument, or `Layers`, which make correlation layers whose options can be set by name::

        @gocor.models.register("mynet-gocor", "my network with local GOCor", base="mynet")
        def mynet_gocor(layers: Layers) -> MatchingNetwork:
            return MyNet(layers.local_gocor())

    Args:
        name: unique name of the network. Names that end in `-tiny` are for tests and are not listed.
        description: one line for `gocor models`.
        base: name of the network that only differs in its correlation layers. Training may start from its weights.
    """

    def enter(build: Builder) -> Builder:
        if name in REGISTRY:
            raise InputError(f"a model named {name!r} is registered already")
        takes_layers = any(p.default is p.empty for p in inspect.signature(build).parameters.values())
        REGISTRY[name] = ModelEntry(name, description, build if takes_layers else lambda _: build(), base)
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


def unknown_model(name: str) -> InputError:
    """The error about a name that no network has."""
    close = get_close_matches(name, list_models(), 1)
    hint = f"did you mean {close[0]!r}? There" if close else "there"
    return InputError(f"no model is named {name!r}; {hint} are {', '.join(list_models())}")


def create_model(name: str, options: Mapping[str, Any] | None = None) -> MatchingNetwork:
    """A network with initial values, in evaluation mode; `load_model` returns one with trained weights.

    Args:
        name: one of `list_models()`.
        options: options in which it differs from the registered network, such as `{"global.initializer": "zero"}`, see
            `Layers`. Unknown ones are errors.
    """
    if not isinstance(name, str):
        raise InputTypeError(f"the name of a model must be a string, got {type(name).__name__}")
    if name not in REGISTRY:
        raise unknown_model(name)
    layers = Layers(options)
    network = REGISTRY[name].build(layers)
    layers.check(name)
    network.name, network.variant = name, layers.given
    return network.eval()


def sketch(name: str, options: Mapping[str, Any] | None = None) -> MatchingNetwork:
    """A network on the meta device: its parameters have no storage, but its facts can be read."""
    with torch.device("meta"):
        return create_model(name, options)


def _five(layer: Callable[[], nn.Module]) -> list[nn.Module]:
    return [layer() for _ in range(5)]


def _on_layers(
    build: type[BaseNet] | type[GLUNet],
    layers: Layers,
    coarse: nn.Module,
    local: nn.Module,
    filtering: str = "none",
    **own: Any,
) -> MatchingNetwork:
    """A network on a global and a local layer; GOCor's global volume needs no L2 normalisation (paper, appendix D)."""
    activation = "leaky-relu" if isinstance(coarse, GlobalGOCor) else "relu-l2"
    options = layers.network(filtering=filtering, activation=activation, width=layers.width)
    return build(coarse, local, radius=layers.radius, **own, **options)


@register("basenet", "BaseNet with plain correlations (ablation I)")
def _plain_basenet(layers: Layers) -> MatchingNetwork:
    return _on_layers(BaseNet, layers, layers.global_correlation(), layers.local_correlation())


@register("basenet-nc", "BaseNet with NC-Net's consensus after the global correlation (ablation II)", base="basenet")
def _basenet_nc(layers: Layers) -> MatchingNetwork:
    return _on_layers(BaseNet, layers, layers.global_correlation(), layers.local_correlation(), "consensus")


@register("basenet-global-linear", "BaseNet, global GOCor with the quadratic objective (ablation III)", base="basenet")
def _basenet_global_linear(layers: Layers) -> MatchingNetwork:
    coarse = layers.global_gocor(512, query_objective=False, reference_objective="quadratic")
    return _on_layers(BaseNet, layers, coarse, layers.local_correlation())


@register("basenet-global-r", "BaseNet, global GOCor with the reference objective (ablation IV)", base="basenet")
def _basenet_global_r(layers: Layers) -> MatchingNetwork:
    coarse = layers.global_gocor(512, query_objective=False)
    return _on_layers(BaseNet, layers, coarse, layers.local_correlation())


@register("basenet-global-rq", "BaseNet, global GOCor with reference and query objective (ablation V)", base="basenet")
def _basenet_global_rq(layers: Layers) -> MatchingNetwork:
    return _on_layers(BaseNet, layers, layers.global_gocor(512), layers.local_correlation())


@register("basenet-gocor", "BaseNet, global and local GOCor (ablation VI)", base="basenet")
def _basenet_gocor(layers: Layers) -> MatchingNetwork:
    return _on_layers(BaseNet, layers, layers.global_gocor(512), layers.local_gocor())


@register("basenet-gocor-lq", "BaseNet-GOCor with the query objective in the local module too", base="basenet")
def _basenet_gocor_lq(layers: Layers) -> MatchingNetwork:
    return _on_layers(BaseNet, layers, layers.global_gocor(512), layers.local_gocor(query_objective=True))


@register("glunet", "GLU-Net with plain correlations")
def _plain_glunet(layers: Layers) -> MatchingNetwork:
    return _on_layers(GLUNet, layers, layers.global_correlation(), layers.local_correlation(), "mutual")


@register("glunet-gocor", "GLU-Net with global and local GOCor", base="glunet")
def _glunet_gocor(layers: Layers) -> MatchingNetwork:
    return _on_layers(GLUNet, layers, layers.global_gocor(512), layers.local_gocor())


@register("semantic-glunet", "Semantic-GLU-Net with plain correlations")
def _semantic_glunet(layers: Layers) -> MatchingNetwork:
    plain = layers.global_correlation(), layers.local_correlation()
    return _on_layers(GLUNet, layers, *plain, "consensus", semantic=True)


@register("semantic-glunet-gocor", "Semantic-GLU-Net with global and local GOCor", base="semantic-glunet")
def _semantic_glunet_gocor(layers: Layers) -> MatchingNetwork:
    return _on_layers(GLUNet, layers, layers.global_gocor(1024), layers.local_gocor(), semantic=True)


@register("pwcnet", "PWC-Net with plain correlations")
def _pwcnet(layers: Layers) -> MatchingNetwork:
    return PWCNet(_five(layers.local_correlation), radius=layers.radius, **layers.network(width=layers.width))


@register("pwcnet-gocor", "PWC-Net with local GOCor at every level", base="pwcnet")
def _pwcnet_gocor(layers: Layers) -> MatchingNetwork:
    return PWCNet(_five(layers.local_gocor), radius=layers.radius, **layers.network(width=layers.width))


@register("liteflownet", "LiteFlowNet with plain correlations")
def _liteflownet(layers: Layers) -> MatchingNetwork:
    plain = _five(partial(layers.local_correlation, 3))
    return LiteFlowNet(plain, radius=layers.radius, **layers.network(width=layers.width))


@register("liteflownet-gocor", "LiteFlowNet with local GOCor at every level", base="liteflownet")
def _liteflownet_gocor(layers: Layers) -> MatchingNetwork:
    gocor = _five(partial(layers.local_gocor, 3))
    return LiteFlowNet(gocor, radius=layers.radius, **layers.network(width=layers.width))


@register("recurrent", "Recurrent updates on plain features")
def _recurrent(layers: Layers) -> MatchingNetwork:
    return RecurrentNet(None, None, **_recurrent_options(layers))


@register(
    "recurrent-gocor",
    "Recurrent updates on GOCor filters, which are optimised once and looked up many times",
    base="recurrent",
)
def _recurrent_gocor(layers: Layers) -> MatchingNetwork:
    start = layers.global_gocor(128, initializer="simple", query_objective=False, regularizer="relative")
    filters, fine = (layers.local_gocor(radius, regularizer="relative") for radius in (4, 3))
    options = _recurrent_options(layers)
    return RecurrentNet(
        filters, start, radius=filters.radius, fine_filters=fine if options["fine"] else None, **options
    )


def _recurrent_options(layers: Layers) -> dict[str, Any]:
    """Options of a recurrent network; small networks look up two scales, because their images are small too."""
    width, channels = layers.width, int(128 * layers.width)
    sizes = {"width": width, "channels": channels, "hidden": channels, "scales": 4 if width == 1 else 2}
    return sizes | layers.network(fine=False)


def _tiny(name: str) -> None:
    """Register a small variant of a network, for tests."""
    entry = REGISTRY[name]

    def build(layers: Layers) -> MatchingNetwork:
        small = Layers(TINY | layers.given)
        network = entry.build(small)
        layers.known = small.known
        return network

    register(f"{name}-tiny", "small, for tests", base=f"{entry.base}-tiny" if entry.base else None)(build)


for _name in (
    "recurrent-gocor",
    "basenet-gocor",
    "glunet",
    "glunet-gocor",
    "semantic-glunet",
    "pwcnet-gocor",
    "liteflownet",
    "liteflownet-gocor",
):
    _tiny(_name)
