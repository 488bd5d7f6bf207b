"""Variants of a network: the options of its correlation layers, set by name, such as `global.initializer`.

A network's builder makes its layers through a `Layers` object, with the network's own choices of options. Options of a
variant replace these choices. The variant is kept with the network, stored with its weights and restored with them.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_type_hints

from ..modules import GlobalFeatureCorrelation, GlobalGOCor, LocalFeatureCorrelation, LocalGOCor
from ..modules.options import GOCorOptions
from ..utils.errors import InputError
from ..utils.options import convert, flatten, nearest
from .matching_layers import Activation, Filtering

# The number of channels is a fact of the features, not a choice.
GOCOR_HINTS = {f.name: get_type_hints(GOCorOptions)[f.name] for f in fields(GOCorOptions) if f.name != "channels"}
PLAIN_HINTS = {"normalize": Literal["mean", "sum"]}
RADIUS_HINT = {"radius": int}
NETWORK_HINTS: dict[str, Any] = {"width": float, "fine": bool, "filtering": Filtering, "activation": Activation}

Variant = dict[str, Any]
"""Options in which a network differs from the registered one, by their dotted names."""


def describe_variant(variant: Mapping[str, Any]) -> str:
    """Options in one line, such as `global.eta=0.1, local.radius=2`."""
    return ", ".join(f"{name}={value}" for name, value in sorted(variant.items())) or "without options"


class Layers:
    """Makes the correlation layers of one network, with the options of a variant in place of the network's own.

    Args:
        options: options of the variant, nested or with dotted names: `global.NAME` and `local.NAME` are options of the
            global layer and of all local layers (fields of `GOCorOptions`, and `radius` of local layers); names without
            a dot are options of the network, such as `width`.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.given: Variant = flatten(options or {})
        self.known: set[str] = set()
        self.radius = 4  # of the local layer that was made last

    def global_gocor(self, channels: int, **own: Any) -> GlobalGOCor:
        """A `GlobalGOCor` for features of `channels` times `width` channels."""
        chosen = own | self._given("global.", GOCOR_HINTS)
        return GlobalGOCor(max(1, int(channels * self.width)), **chosen)

    def local_gocor(self, radius: int = 4, **own: Any) -> LocalGOCor:
        """A `LocalGOCor`."""
        chosen = {"radius": radius} | own | self._given("local.", GOCOR_HINTS | RADIUS_HINT)
        layer = LocalGOCor(**chosen)
        self.radius = layer.radius
        return layer

    def global_correlation(self) -> GlobalFeatureCorrelation:
        """A plain global correlation."""
        return GlobalFeatureCorrelation(**self._given("global.", PLAIN_HINTS))

    def local_correlation(self, radius: int = 4) -> LocalFeatureCorrelation:
        """A plain local correlation."""
        layer = LocalFeatureCorrelation(**({"radius": radius} | self._given("local.", PLAIN_HINTS | RADIUS_HINT)))
        self.radius = layer.radius
        return layer

    @property
    def width(self) -> float:
        """Factor of all channels."""
        value: float = self._given("", {"width": float}).get("width", 1.0)
        if not 0 < value <= 1:
            raise InputError(f"width must be above 0 and at most 1, got {value}")
        return value

    def network(self, **own: Any) -> dict[str, Any]:
        """Options of the network itself: its own values, replaced by those of the variant."""
        return own | self._given("", {name: NETWORK_HINTS[name] for name in own})

    def check(self, name: str) -> None:
        """Raise an error if the variant has options that no layer of the network has."""
        for option in self.given:
            if option not in self.known:
                raise InputError(f"{name} has no option {option!r}; {nearest(option, self.known)}")

    def _given(self, prefix: str, hints: Mapping[str, Any]) -> dict[str, Any]:
        """The variant's options of one layer, with their types."""
        self.known |= {prefix + name for name in hints}
        return {
            name: convert(prefix + name, self.given[prefix + name], hint)
            for name, hint in hints.items()
            if prefix + name in self.given
        }
