"""The options of matching that `gocor.match`, `gocor match` and `gocor eval` share."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ..models.evaluation_view import Precision
from ..models.network import MatchingNetwork
from ..models.resizing import MIN_MAX_SIZE
from ..utils.checks import check_count
from ..utils.defaults import MAX_SIZE
from ..utils.errors import InputError, InputTypeError

MINIMUM = {"iters_local": 0, "iters_global": 0, "updates": 1, "min_size": 0, "max_size": MIN_MAX_SIZE}
NOT_OF_THE_NETWORK = ("align", "confidence", "precision", "second_look", "fast")


@dataclass(frozen=True, kw_only=True)
class MatchOptions:
    """How a network matches two images: everything that the flow depends on, besides the images and the weights.

    Attributes:
        iters_local: number of iterations of the local GOCor layers; `None` for the layers' own.
        iters_global: number of iterations of the global GOCor layer; `None` for the layer's own.
        updates: largest number of updates of a recurrent network; fewer take less time; `None` for its own.
        min_size: lower bound in pixels of the longer side that the network works at; 0 for none, `None` for the
            network's own. Smaller images are enlarged, see `MatchingNetwork.working_size`.
        max_size: upper bound of the same, or `None`. It wins over `min_size`.
        align: align images of a wide baseline first (`gocor.matching.alignment`), and replace the flow of flat scenes
            by a homography (`gocor.matching.planar`). `None` does so if the network can.
        confidence: where confidence and occlusion come from. `"learnt"` takes what the network predicts along with the
            flow, `"consistency"` compares with the flow in the opposite direction, which takes twice as long, and
            `None` takes the first if the network learns it.
        precision: precision of convolutions: `"bf16"` is bfloat16, `"float32"` that of the weights. `None` takes
            bfloat16 on a CPU that has instructions for it, if the network is as accurate with it, and otherwise the
            network's own, see `load_model`.
        second_look: look at pairs that the network is unsure of a second time, from images of half the size
            (`gocor.matching.second_look`), and with `align` also at parts of the scene that move apart
            (`gocor.matching.alignment.looks`). `None` does so if the network can, unless `fast`.
        fast: match faster and less finely: small images are not enlarged, a recurrent network makes fewer updates, and
            there is no second look, unless `min_size`, `updates` or `second_look` say otherwise.
    """

    iters_local: int | None = None
    iters_global: int | None = None
    updates: int | None = None
    min_size: int | None = None
    max_size: int | None = MAX_SIZE
    align: bool | None = None
    confidence: Literal["learnt", "consistency"] | None = None
    precision: Precision | None = None
    second_look: bool | None = None
    fast: bool = False

    def __post_init__(self) -> None:
        for name, minimum in MINIMUM.items():
            if (value := getattr(self, name)) is not None:
                check_count(name, value, minimum=minimum)
        for name in ("align", "second_look"):
            if (choice := getattr(self, name)) is not None and not isinstance(choice, bool):
                raise InputTypeError(f"{name} must be True, False or None, got {choice!r}")
        if self.confidence not in (None, "learnt", "consistency"):
            raise InputError(f"confidence must be 'learnt', 'consistency' or None, got {self.confidence!r}")
        if self.precision not in (None, "bf16", "float32"):
            raise InputError(f"precision must be 'bf16', 'float32' or None, got {self.precision!r}")

    def resolve(self, network: MatchingNetwork, *, flips: bool = False) -> "MatchOptions":
        """The same options with the network's own choices in place of `None`, except for numbers of iterations.

        Args:
            network: the network that matches.
            flips: whether mirrored images are tried too, which excludes alignment.
        """
        if self.align and flips:
            raise InputError("align=True cannot be combined with a protocol that tries mirrored images")
        name = network.name or type(network).__name__
        if self.align and not network.can_align:
            raise InputError(f"{name} gives no coarse matches, so it cannot align images")
        if self.confidence == "learnt" and not network.learns_confidence:
            raise InputError(f"{name} does not learn a confidence: choose 'consistency'")
        if self.second_look and not network.takes_start:
            raise InputError(f"{name} cannot start from a flow, so there is no second look")
        own_size, own_updates = (0, network.fast_updates) if self.fast else (network.min_size, None)
        return replace(
            self,
            min_size=own_size if self.min_size is None else self.min_size,
            updates=own_updates if self.updates is None else self.updates,
            align=network.can_align and not flips if self.align is None else self.align,
            second_look=network.takes_start and not self.fast if self.second_look is None else self.second_look,
            confidence=self.confidence or ("learnt" if network.learns_confidence else "consistency"),
        )

    def as_dict(self) -> dict[str, Any]:
        """The options by name, as they are stored beside results."""
        return asdict(self)

    def network_options(self) -> dict[str, Any]:
        """The options of `MatchingNetwork.forward`."""
        return {name: value for name, value in self.as_dict().items() if name not in NOT_OF_THE_NETWORK}


DEFAULT_OPTIONS = MatchOptions()
