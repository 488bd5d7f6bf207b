"""The options that `LocalGOCor` and `GlobalGOCor` share."""

from dataclasses import dataclass
from typing import Literal

from ..utils.checks import check_choice, check_count
from ..utils.errors import InputError
from .initializers import INITIALIZERS

RELATIVE_START = 0.25  # ρ that a relative regulariser starts from
ABSOLUTE_START = 1e-2  # λ that an absolute one starts from, as in published code


@dataclass(frozen=True, kw_only=True)
class GOCorOptions:
    """Options of a GOCor module. Both modules take them as keyword arguments.

    Attributes:
        iters: number of steepest descent iterations.
        initializer: initial filters: `"zero"`, `"simple"`, `"flexible-simple"`, `"context"` or `"flexible-context"`.
        query_objective: add the query objective (paper, eq. 6).
        channels: D. The flexible initialisers learn one value per channel; the others accept any D.
        reference_objective: `"robust"` (paper, eq. 5), or `"quadratic"` for ‖C(w, f^r) − δ‖².
        knots: N, number of knots of the distance basis (paper, appendix C).
        spacing: Δ, distance of the knots in feature pixels.
        target_sigma: width of the Gaussian that y′ starts from; 0 starts from one at distance 0 and zero elsewhere.
        eta: η ≥ 0 of the robust function σ_η (paper, eq. 4).
        query_kernel: side of R's kernels, odd.
        query_channels: channels between R's two kernels, and after them.
        regularizer: `"absolute"`: λ² is learnt as it is, with a lower bound (published code). `"relative"`:
            λ² = ρ²·mean‖f^r‖² of each sample, with ρ learnt in the logarithm. It does not depend on the scale of the
            features and bounds filters and gradients in flat regions.
        regularization: λ or ρ to start from; `None` for 0.01 (λ) or 0.25 (ρ).
        min_regularization: lower bound of |λ| of an absolute regulariser.
        step_factor: factor s of the step length to start from.
        scale_free_step: leave out the absolute floor of the step's denominator. Published code has one, which stalls
            the optimisation of small or unit-norm features.
        bidirectional: average the volume with the one computed with reference and query exchanged.
        form: the code that runs, see `gocor.ops.select`: `"auto"` or the name of a form.
    """

    iters: int = 3
    initializer: str = "simple"
    query_objective: bool = False
    channels: int | None = None
    reference_objective: Literal["robust", "quadratic"] = "robust"
    knots: int = 10
    spacing: float = 0.5
    target_sigma: float = 1.0
    eta: float = 0.0
    query_kernel: int = 3
    query_channels: tuple[int, int] = (16, 16)
    regularizer: Literal["absolute", "relative"] = "absolute"
    regularization: float | None = None
    min_regularization: float = 1e-5
    step_factor: float = 1.0
    scale_free_step: bool = True
    bidirectional: bool = False
    form: str = "auto"

    def __post_init__(self) -> None:
        check_count("iters", self.iters)
        check_count("knots", self.knots, minimum=1)
        check_count("query_kernel", self.query_kernel, minimum=1)
        check_choice("initializer", self.initializer, INITIALIZERS)
        check_choice("reference_objective", self.reference_objective, ("robust", "quadratic"))
        check_choice("regularizer", self.regularizer, ("absolute", "relative"))
        if self.channels is not None:
            check_count("channels", self.channels, minimum=1)
        elif self.initializer.startswith("flexible"):
            raise InputError(f"initializer {self.initializer!r} learns one value per channel: pass channels=")
        for name in ("spacing", "step_factor", "min_regularization"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")
        if self.regularizer == "relative" and self.regularization is not None and not self.regularization > 0:
            raise InputError(f"regularization must be positive if it is relative, got {self.regularization}")
        for name in ("eta", "target_sigma"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.query_kernel % 2 == 0:
            raise InputError(f"query_kernel must be odd, got {self.query_kernel}")
        for index, count in enumerate(self.query_channels):
            check_count(f"query_channels[{index}]", count, minimum=1)

    @property
    def start_regularization(self) -> float:
        """λ or ρ to start from."""
        if self.regularization is not None:
            return float(self.regularization)
        return RELATIVE_START if self.regularizer == "relative" else ABSOLUTE_START
