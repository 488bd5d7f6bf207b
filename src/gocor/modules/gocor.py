"""What the global and the local GOCor module share: parameters, forward pass, explanation, published parameters."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..ops import select
from ..ops.descent.operators import GlobalParameters, LocalParameters
from ..ops.descent.reference import Problem, State, steepest_descent
from ..ops.forms import Form
from ..utils.checks import check_choice, check_count, check_feature_pair, check_features
from ..utils.errors import InputError
from .initializers import build_initializer
from .objective import QuadraticObjective, QueryObjective, ReferenceObjective
from .options import GOCorOptions

Parameters = TypeVar("Parameters", GlobalParameters, LocalParameters)

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
    """What a GOCor module did with one pair, iteration by iteration. Entry 0 belongs to the initial filters.

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


def widened(*features: Tensor) -> list[Tensor]:
    """Features in float32, or in float64 if they are float64."""
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in features]


class GOCor(nn.Module, ABC):
    """Base of `GlobalGOCor` and `LocalGOCor`, which document the modules; `GOCorOptions` documents the options."""

    same_size: bool  # whether reference and query must have the same size
    requests: tuple[str, ...]  # values of `form`

    def __init__(self, options: GOCorOptions, *, stabilizer: float) -> None:
        super().__init__()
        check_choice("form", options.form, self.requests)
        self.options = options
        self.iters, self.form = options.iters, options.form
        self.scale_free_step, self.bidirectional = options.scale_free_step, options.bidirectional
        self.initializer = build_initializer(options.initializer, options.channels, stabilizer)
        self.objective: ReferenceObjective | QuadraticObjective = (
            ReferenceObjective(
                knots=options.knots, spacing=options.spacing, target_sigma=options.target_sigma, eta=options.eta
            )
            if options.reference_objective == "robust"
            else QuadraticObjective()
        )
        inter, out = options.query_channels
        self.query_objective = (
            QueryObjective(kernel=options.query_kernel, inter=inter, out=out) if options.query_objective else None
        )
        start = options.start_regularization
        if options.regularizer == "relative":
            self.log_regularization = nn.Parameter(torch.tensor(math.log(start)))
        else:
            self.regularization = nn.Parameter(torch.tensor(start))
        self.log_step_factor = nn.Parameter(torch.tensor(math.log(options.step_factor)))
        self._derived: tuple[Any, Any] = (None, None)

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """Correspondence volume of two feature maps.

        Args:
            reference: `(B, C, H, W)`.
            query: `(B, C, H′, W′)`; the local module needs the size of the reference.
            iters: number of steepest descent iterations, in place of the module's own.

        Returns:
            `(B, K, H, W)`, with the shape and channel order of the plain correlation layer. 16-bit inputs are
            optimised in float32, inside autocast too; the volume has the dtype of the inputs.
        """
        reference, query, iters = self._check(reference, query, iters)
        dtype = reference.dtype
        with torch.autocast(reference.device.type, enabled=False):
            volume = self._volume(reference, query, iters)
            if self.bidirectional:
                exchanged = self._volume(query, reference, iters)
                volume = (volume + self._transpose(exchanged, reference)) / 2
        return volume.to(dtype)

    def selected_form(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Form:
        """The form that `forward` uses for these inputs, see `gocor.ops.select`."""
        return self._form(*self._check(reference, query, iters))

    @torch.no_grad()
    def explain(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Explanation:
        """What `forward` does, iteration by iteration (in one direction, if the module fuses two)."""
        reference, query, iters = self._check(reference, query, iters)
        states: list[State] = []
        with torch.autocast(reference.device.type, enabled=False):
            problem = self._problem(*widened(reference, query))
            steepest_descent(problem, self.initializer(problem.reference), iters, states.append)
            volumes = tuple(problem.correlate(state.filters, problem.query) for state in states)

        def half_square(x: Tensor | None) -> Tensor:
            return x.square().flatten(1).sum(1) / 2 if x is not None else problem.reference.new_zeros(len(reference))

        decay = problem.regularization.flatten()
        return Explanation(
            filters=tuple(s.filters for s in states),
            reference_volumes=tuple(s.scores for s in states),
            query_volumes=volumes,
            reference_term=torch.stack([half_square(s.residual) for s in states]),
            query_term=torch.stack([half_square(s.smoothed) for s in states]),
            regularization_term=decay * torch.stack([half_square(s.filters) for s in states]),
            step_lengths=tuple(s.step for s in states if s.step is not None),
        )

    @torch.no_grad()
    def load_published(self, params: Mapping[str, Tensor | np.ndarray], *, scale_free_step: bool = False) -> None:
        """Take the parameters of a published GOCor module, by their published names.

        Args:
            params: `filter_initializer.*` and `filter_optimizer.*` → tensors or arrays. A name that is missing, not
                expected or of another size is an error, and leaves the module as it was.
            scale_free_step: the step rule to use with them. Published parameters were trained with the absolute floor,
                so that is the default.
        """
        expected = self._published_names()
        missing, unexpected = sorted(expected.keys() - params.keys()), sorted(params.keys() - expected.keys())
        if missing or unexpected:
            raise InputError(f"published parameters do not fit this module: missing {missing}, unexpected {unexpected}")
        values = {name: torch.as_tensor(params[name]) for name in expected}
        for name, parameter in expected.items():
            if values[name].numel() != parameter.numel():
                raise InputError(
                    f"published parameter {name} must have {parameter.numel()} values, got {tuple(values[name].shape)}"
                )
        for name, parameter in expected.items():
            parameter.copy_(values[name].reshape(parameter.shape))
        self.scale_free_step = scale_free_step

    @torch.no_grad()
    def learnt_scalars(self) -> dict[str, float]:
        """Learnt scalars by name.

        Regulariser (λ or ρ), step factor, v⁺(0) if it is learnt, and mean and deviation of the initialiser's values.
        """
        relative = self.options.regularizer == "relative"
        found = {
            "regularization": self.log_regularization.exp().item() if relative else self.regularization.item(),
            "step_factor": self.log_step_factor.exp().item(),
        }
        if isinstance(self.objective, ReferenceObjective):
            found["own_weight"] = self.objective.weight[0].item()
        for name, values in self.initializer.named_parameters():
            found[f"initializer_{name}_mean"] = values.mean().item()
            found[f"initializer_{name}_std"] = values.std(correction=0).item()
        return found

    def extra_repr(self) -> str:
        """Options, for `print`."""
        o = self.options
        return (
            f"iters={self.iters}, initializer={o.initializer!r}, reference_objective={o.reference_objective!r}, "
            f"regularizer={o.regularizer!r}, scale_free_step={self.scale_free_step}, bidirectional={self.bidirectional}"
        )

    def _check(self, reference: Tensor, query: Tensor, iters: int | None) -> tuple[Tensor, Tensor, int]:
        reference, query = check_feature_pair(reference, query, same_size=self.same_size)
        return reference, query, self._check_reference(reference, iters)

    def _check_reference(self, reference: Tensor, iters: int | None) -> int:
        check_features("reference", reference)
        expected = getattr(self.initializer, "beta", self.log_step_factor).numel()
        if expected not in (1, reference.shape[1]):
            raise InputError(f"this module's initialiser was made for {expected} channels, got {reference.shape[1]}")
        if reference.device != self.log_step_factor.device:
            raise InputError(f"the module is on {self.log_step_factor.device}, its inputs are on {reference.device}")
        iters = self.iters if iters is None else iters
        check_count("iters", iters)
        return iters

    def _published_names(self) -> dict[str, nn.Parameter]:
        """The module's parameters by their published names."""
        own = dict(self.named_parameters())
        if "regularization" not in own:
            raise InputError("published parameters need regularizer='absolute', the published rule")
        other = "filter_initializer.scaling" if "initializer.gamma" in own else "filter_initializer.target_fg"
        return {name: own[ours] for name, ours in PUBLISHED_NAMES.items() if ours in own and name != other}

    def _squared_regularization(self, reference: Tensor) -> Tensor:
        """λ² `(1, 1, 1, 1)`, or `(B, 1, 1, 1)` if it is relative, in float32 or wider."""
        dtype = torch.promote_types(reference.dtype, torch.float32)
        if self.options.regularizer == "absolute":
            squared = self.regularization.to(dtype).square().clamp(min=self.options.min_regularization**2)
            return squared.view(1, 1, 1, 1)
        norms = torch.linalg.vector_norm(reference, dim=(1, 2, 3), keepdim=True, dtype=dtype)
        scale = (2 * self.log_regularization.to(dtype)).exp()  # ρ²
        return scale * norms.square() / (reference.shape[2] * reference.shape[3])

    def _regularized(self, parameters: Parameters, reference: Tensor) -> Parameters:
        """Kernel inputs with the regulariser of these features. An absolute one does not depend on the features."""
        if self.options.regularizer == "absolute":
            return parameters
        return parameters._replace(regularization=self._squared_regularization(reference).flatten())

    def _step_factor(self, dtype: torch.dtype) -> Tensor:
        return self.log_step_factor.to(dtype).exp()

    def _needs_gradients(self, *features: Tensor) -> bool:
        return torch.is_grad_enabled() and select.needs_gradients(*features, *self.parameters())

    def _derive(self, compute: Callable[[], Any], *key: Any) -> Any:
        """Kernel inputs that `compute` makes from the parameters, cached until a parameter or the key changes."""
        if torch.compiler.is_compiling():
            return compute()
        parameters = list(self.parameters())
        if any(p.is_inference() for p in parameters):  # inference tensors have no version counter
            return compute()
        state = (*key, *((p.data_ptr(), p._version) for p in parameters))
        if self._derived[0] == state:
            return self._derived[1]
        value = compute()
        # Tensors that are made while a CUDA graph is recorded are in the graph's memory and must not be cached.
        if not (parameters[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            self._derived = state, value
        return value

    @abstractmethod
    def _form(self, reference: Tensor, query: Tensor, iters: int) -> Form:
        """The form that computes the volume."""

    @abstractmethod
    def _volume(self, reference: Tensor, query: Tensor, iters: int) -> Tensor:
        """The volume in one direction, `(B, K, H, W)`."""

    @abstractmethod
    def _problem(self, reference: Tensor, query: Tensor) -> Problem:
        """The optimisation problem of a pair of feature maps."""

    @abstractmethod
    def _transpose(self, volume: Tensor, reference: Tensor) -> Tensor:
        """A volume computed with reference and query exchanged, as seen from the reference."""
