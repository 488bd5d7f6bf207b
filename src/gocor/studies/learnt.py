"""Learnt values of the regulariser and of v⁺ in the GOCor layers of a trained network."""

from dataclasses import dataclass

from ..models.network import MatchingNetwork
from ..modules import GlobalGOCor
from ..modules.gocor import GOCor


@dataclass(frozen=True)
class Learnt:
    """Learnt values of a GOCor layer.

    Attributes:
        regularization: |λ| of an absolute regulariser, ρ of a relative one.
        floor: lower bound of |λ|, below which it gets no gradient; `None` for a relative regulariser.
        weight: v⁺(0), the weight of a filter's own pixel; `None` if the layer learns none.
    """

    regularization: float
    floor: float | None
    weight: float | None

    @property
    def below_floor(self) -> bool:
        """Whether λ gets no gradient any more."""
        return self.floor is not None and self.regularization < self.floor


def learnt_values(network: MatchingNetwork) -> dict[str, Learnt]:
    """The learnt values of a network's GOCor layers, by their name in tables, such as `global` or `local 2`."""
    layers = [module for module in network.modules() if isinstance(module, GOCor)]
    kinds = ["global" if isinstance(layer, GlobalGOCor) else "local" for layer in layers]
    found: dict[str, Learnt] = {}
    for index, (kind, layer) in enumerate(zip(kinds, layers, strict=True)):
        name = f"{kind} {kinds[: index + 1].count(kind)}" if kinds.count(kind) > 1 else kind
        options, scalars = layer.options, layer.learnt_scalars()
        found[name] = Learnt(
            regularization=abs(scalars["regularization"]),
            floor=options.min_regularization if options.regularizer == "absolute" else None,
            weight=scalars.get("own_weight"),
        )
    return found
