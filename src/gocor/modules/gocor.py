"""What the global and the local GOCor module share: parameters, forward pass, explanation, published parameters."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..ops.descent.reference import Problem, State, steepest_descent
from ..utils.checks import check_choice, check_count, check_feature_pair
from .initializers import build_initializer
from .objective import QuadraticObjective, QueryRegularizer, ReferenceObjective

Objective = Literal["robust", "quadratic"]

# Parameters of published modules and ours. A module has either the simple or the context initialiser.
PUBLISHED_NAMES = {
    "filter_initializer.scaling": "initializer.beta",
    "filter_initializer.target_fg": "initializer.beta",
    "filter_initializer.target_bg": "initializer.gamma",
    "filter_optimizer.log_step_length": "log_step_factor",
    "filter_optimizer.filter_reg": "regularization",
    "filter_optimizer.label_map_predictor.weight": "objective.target",
    "filter_optimizer.spatial_weight_predictor.weight": "objective.weight",
    "filter_optimizer.target_mask_predictor.0.weight": "objective.mask",
    "filter_optimizer.reg_layer.weight1": "query_objective.weight1",
    "filter_optimizer.reg_layer.weight2": "query_objective.weight2",
}


@dataclass(frozen=True)
class Explanation:
    """What a GOCor module did with one pair, iteration by iteration. Entry 0 is the initial filter map.

    Attributes:
        filters: filter maps, `iters + 1` times `(B, C, H, W)`.
        reference_volumes: their correlation with the reference, `iters + 1` times `(B, K, H, W)`.
        query_volumes: their correlation with the query, `iters + 1` times `(B, K′, H, W)`. The last one is the
            module's output (without bidirectional fusion).
        reference_term: ½‖σ(C(w, f^r)) − y‖², `(iters + 1, B)`.
        query_term: ½‖R ∗ C(w, f^q)‖², `(iters + 1, B)`; zero without query objective.
        regularization_term: ½λ²‖w‖², `(iters + 1, B)`.
        step_lengths: s·α of each iteration, `iters` times `(B, 1, H, W)` per location or `(B, 1, 1, 1)` per sample.
    """

    filters: tuple[Tensor, ...]
    reference_volumes: tuple[Tensor, ...]
    query_volumes: tuple[Tensor, ...]
    reference_term: Tensor
    query_term: Tensor
    regularization_term: Tensor
    step_lengths: tuple[Tensor, ...]

    @property
    def objective(self) -> Tensor:
        """The whole objective, `(iters + 1, B)`."""
        return self.reference_term + self.query_term + self.regularization_term


ParameterState = tuple[tuple[int, int], ...] | None


def state_of(module: nn.Module) -> ParameterState:
    """Changes whenever a parameter of the module does; `None` where that cannot be told."""
    parameters = list(module.parameters())
    if any(p.is_inference() for p in parameters):
        return None
    return tuple((p.data_ptr(), p._version) for p in parameters)


def recording(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded: what is made now lies in its memory, and is not to be kept."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def in_full_precision(*features: Tensor) -> list[Tensor]:
    """Features in float32, or in float64 where they are."""
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in features]


class GOCor(nn.Module, ABC):
    """Base of `GlobalGOCor` and `LocalGOCor`; they document the options."""

    same_size: bool  # whether reference and query must have one size

    def __init__(
        self,
        *,
        iters: int,
        initializer: str,
        channels: int | None,
        stabilizer: float,
        query_objective: bool,
        reference_objective: Objective,
        knots: int,
        spacing: float,
        target_sigma: float,
        eta: float,
        query_kernel: int,
        query_channels: tuple[int, int],
        regularization: float,
        min_regularization: float,
        step_factor: float,
        scale_free_step: bool,
        bidirectional: bool,
    ) -> None:
        super().__init__()
        check_count("iters", iters)
        check_count("knots", knots, minimum=1)
        check_count("query_kernel", query_kernel, minimum=1)
        check_choice("reference_objective", reference_objective, ("robust", "quadratic"))
        if channels is not None:
            check_count("channels", channels, minimum=1)
        for name, value in (
            ("spacing", spacing),
            ("step_factor", step_factor),
            ("min_regularization", min_regularization),
        ):
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        for name, value in (("eta", eta), ("target_sigma", target_sigma)):
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        if query_kernel % 2 == 0:
            raise ValueError(f"query_kernel must be odd, got {query_kernel}")
        inter, out = query_channels
        check_count("query_channels[0]", inter, minimum=1)
        check_count("query_channels[1]", out, minimum=1)

        self.iters = iters
        self.scale_free_step = scale_free_step
        self.bidirectional = bidirectional
        self.min_regularization = min_regularization
        self.initializer = build_initializer(initializer, channels, stabilizer)
        self.objective: ReferenceObjective | QuadraticObjective = (
            ReferenceObjective(knots=knots, spacing=spacing, target_sigma=target_sigma, eta=eta)
            if reference_objective == "robust"
            else QuadraticObjective()
        )
        self.query_objective = QueryRegularizer(kernel=query_kernel, inter=inter, out=out) if query_objective else None
        self.regularization = nn.Parameter(torch.tensor(float(regularization)))
        self.log_step_factor = nn.Parameter(torch.tensor(float(np.log(step_factor))))
        self._options = f"iters={iters}, initializer={initializer!r}, reference_objective={reference_objective!r}"

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """Correspondence volume of two feature maps.

        Args:
            reference: `(B, C, H, W)`.
            query: `(B, C, H′, W′)`, of the same size in the local module.
            iters: number of steepest descent iterations, in place of the module's own.

        Returns:
            `(B, K, H, W)`, of the shape and channel order that the plain correlation layer has. 16-bit inputs are
            optimised in float32, autocast or not; the volume comes back in the inputs' dtype.
        """
        reference, query, iters = self._check(reference, query, iters)
        dtype = reference.dtype
        with torch.autocast(reference.device.type, enabled=False):
            volume = self._volume(reference, query, iters)
            if self.bidirectional:
                exchanged = self._volume(query, reference, iters)
                volume = (volume + self._transpose(exchanged, reference)) / 2
        return volume.to(dtype)

    @torch.no_grad()
    def explain(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Explanation:
        """What `forward` does, iteration by iteration (one direction of it, where two are fused)."""
        reference, query, iters = self._check(reference, query, iters)
        states: list[State] = []
        with torch.autocast(reference.device.type, enabled=False):
            problem = self._problem(*in_full_precision(reference, query))
            steepest_descent(problem, self.initializer(problem.reference), iters, states.append)
            volumes = tuple(problem.correlate(state.filters, problem.query) for state in states)

        def half_square(x: Tensor | None) -> Tensor:
            return x.square().flatten(1).sum(1) / 2 if x is not None else problem.reference.new_zeros(len(reference))

        return Explanation(
            filters=tuple(s.filters for s in states),
            reference_volumes=tuple(s.scores for s in states),
            query_volumes=volumes,
            reference_term=torch.stack([half_square(s.residual) for s in states]),
            query_term=torch.stack([half_square(s.smoothed) for s in states]),
            regularization_term=problem.regularization * torch.stack([half_square(s.filters) for s in states]),
            step_lengths=tuple(s.step_length for s in states if s.step_length is not None),
        )

    @torch.no_grad()
    def load_published(self, params: Mapping[str, Tensor | np.ndarray], *, scale_free_step: bool = False) -> None:
        """Take the parameters of a published GOCor module, by their published names.

        Args:
            params: `filter_initializer.*` and `filter_optimizer.*` → tensors or arrays. A name that is missing, not
                expected or of another size is an error, and leaves the module as it was.
            scale_free_step: the step rule to go with them. Published parameters were trained with the absolute floor,
                so they bring it along unless told otherwise.
        """
        expected = self._published_names()
        missing, unexpected = sorted(expected.keys() - params.keys()), sorted(params.keys() - expected.keys())
        if missing or unexpected:
            raise ValueError(f"published parameters do not fit this module: missing {missing}, unexpected {unexpected}")
        values = {name: torch.as_tensor(params[name]) for name in expected}
        for name, parameter in expected.items():
            if values[name].numel() != parameter.numel():
                raise ValueError(
                    f"published parameter {name} must have {parameter.numel()} values, got {tuple(values[name].shape)}"
                )
        for name, parameter in expected.items():
            parameter.copy_(values[name].reshape(parameter.shape))
        self.scale_free_step = scale_free_step

    def extra_repr(self) -> str:
        """Options, for `print`."""
        return f"{self._options}, scale_free_step={self.scale_free_step}, bidirectional={self.bidirectional}"

    def _check(self, reference: Tensor, query: Tensor, iters: int | None) -> tuple[Tensor, Tensor, int]:
        reference, query = check_feature_pair(reference, query, same_size=self.same_size)
        expected = getattr(self.initializer, "beta", self.regularization).numel()
        if expected not in (1, reference.shape[1]):
            raise ValueError(f"this module's initialiser was made for {expected} channels, got {reference.shape[1]}")
        if reference.device != self.regularization.device:
            raise ValueError(f"the module is on {self.regularization.device}, its inputs are on {reference.device}")
        if iters is None:
            iters = self.iters
        check_count("iters", iters)
        return reference, query, iters

    def _published_names(self) -> dict[str, nn.Parameter]:
        """The module's parameters by their published names."""
        own = dict(self.named_parameters())
        other = "filter_initializer.scaling" if "initializer.gamma" in own else "filter_initializer.target_fg"
        return {name: own[ours] for name, ours in PUBLISHED_NAMES.items() if ours in own and name != other}

    def _squared_regularization(self, dtype: torch.dtype) -> Tensor:
        """λ², kept positive."""
        return self.regularization.to(dtype).square().clamp(min=self.min_regularization**2)

    def _step_factor(self, dtype: torch.dtype) -> Tensor:
        return self.log_step_factor.to(dtype).exp()

    def _volume(self, reference: Tensor, query: Tensor, iters: int) -> Tensor:
        """The volume in one direction, `(B, K, H, W)`, in float32 at the least."""
        reference, query = in_full_precision(reference, query)
        problem = self._problem(reference, query)
        return problem.correlate(steepest_descent(problem, self.initializer(reference), iters), query)

    @abstractmethod
    def _problem(self, reference: Tensor, query: Tensor) -> Problem:
        """The optimisation problem of a pair of feature maps."""

    @abstractmethod
    def _transpose(self, volume: Tensor, reference: Tensor) -> Tensor:
        """A volume that was computed with reference and query exchanged, seen from the reference."""
