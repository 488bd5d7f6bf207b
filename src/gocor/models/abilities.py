"""Abilities that some networks have besides flow. A network with an ability overrides the attribute or the method."""

from typing import Any, ClassVar

from torch import Tensor

from ..utils.errors import InputTypeError
from .outputs import ImageFeatures, Prediction
from .stages import Stage


class Abilities:
    """Abilities that not every network has. By default, a method raises an error that names the missing ability.

    Attributes:
        name: the registered name; empty for a network that was built by hand.
        coarse_side: side of the square images that `coarse_features` takes; `None` if the network gives no coarse
            matches, so that images of a wide baseline cannot be aligned.
        can_flip: whether `forward_with_flips` also matches mirrored images.
        learns_confidence: whether the network gives the confidence and the visibility of its flow, see `predict`.
        reuses_features: whether `features` and `match_features` are defined.
        takes_start: whether `match_features` takes a flow to start from.
        updates: largest number of recurrent updates of the flow; `None` if the network is not recurrent.
        fast_updates: largest number of updates with `MatchOptions.fast`.
    """

    name = ""
    coarse_side: ClassVar[int | None] = None
    can_flip: ClassVar[bool] = False
    learns_confidence: ClassVar[bool] = False
    reuses_features: ClassVar[bool] = False
    takes_start: ClassVar[bool] = False
    updates: int | None = None
    fast_updates: ClassVar[int | None] = None

    def finest_outputs(self, *inputs: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """The flow of `finest_flow` and the logits of `Outputs.confidence`, for networks that learn a confidence."""
        raise InputTypeError(f"{self.name or type(self).__name__} does not learn a confidence")

    @property
    def can_align(self) -> bool:
        """Whether the network gives the coarse matches that the alignment of wide baselines needs."""
        return self.coarse_side is not None

    def coarse_features(self, image: Tensor) -> tuple[Tensor, ...]:
        """Features of RGB images `(B, 3, coarse_side, coarse_side)` in [0, 255], fine to coarse."""
        raise InputTypeError(f"{self.name or type(self).__name__} gives no coarse matches")

    def coarse_flow(self, reference: tuple[Tensor, ...], query: tuple[Tensor, ...]) -> Tensor:
        """Flow `(B, 2, h, w)` between two images' `coarse_features`, in pixels of the coarse images."""
        raise InputTypeError(f"{self.name or type(self).__name__} gives no coarse matches")

    def stages(self, *inputs: Tensor) -> list[Stage]:
        """The correlation layers, coarse to fine, each with the features of both images that it compares.

        Args:
            *inputs: what `prepare` returns.

        Returns:
            An empty list by default: `gocor.matching.scores` then has no scores to show.
        """
        return []

    def features(self, image: Tensor, *, min_size: int | None = None, max_size: int | None = None) -> ImageFeatures:
        """Features of RGB images `(B, 3, H, W)` in [0, 255] for `match_features`; sizes as in `forward`."""
        raise InputTypeError(f"{self.name or type(self).__name__} cannot match features that were computed before")

    def match_features(self, reference: ImageFeatures, query: ImageFeatures, **options: Any) -> Prediction:
        """What `predict` finds, from the `features` of two batches of images with one working size.

        Args:
            reference: features of the reference.
            query: features of the query.
            **options: `iters_local`, `iters_global` and `updates`, as in `forward`; for networks that take a start also
                `start`, a flow `(B, 2, H, W)` between the images.
        """
        raise InputTypeError(f"{self.name or type(self).__name__} cannot match features that were computed before")

    def forward_with_flips(self, reference: Tensor, query: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """Flow between images of which one may be mirrored, and which samples were matched mirrored, `(B,)` bool."""
        raise InputTypeError(f"{self.name or type(self).__name__} cannot match mirrored images")
