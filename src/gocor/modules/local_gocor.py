"""Local GOCor: every filter against the pixels around it."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..ops import select, transpose_local_volume
from ..ops.correlation import local
from ..ops.descent import operators, rounding
from ..ops.descent.operators import LocalOptions, LocalParameters
from ..ops.descent.reference import Problem, steepest_descent
from ..ops.descent.smoothing import QuerySmoothing
from ..ops.descent.tiles import descend_on_tiles
from ..ops.forms import Form
from ..utils.checks import check_count
from ..utils.errors import InputError
from .basis import local_distances
from .gocor import GOCor, widened
from .initializers import SimpleInitializer, ZeroInitializer
from .options import GOCorOptions


class LocalGOCor(GOCor):
    """Drop-in replacement of a local correlation layer (paper, sec. 3).

    It minimises the objective of `GlobalGOCor` over the (2R+1)² pixels around each filter. Published code correlates by
    the mean over channels and rescales the regulariser; with filters divided by D this equals our sum over channels
    with λ² unchanged. Features are usually not normalised before.

    Args:
        radius: search radius R.
        iters: number of steepest descent iterations.
        initializer: initial filters, see `GOCorOptions`.
        query_objective: add the query objective (the paper found it harmful here). R's first kernel then acts on
            positions, the second one on displacements.
        **options: see `GOCorOptions`. `form` is `"auto"`, `"filters"`, `"tiles"`, `"gram-kernels"`, `"tensor-cores"`,
            or `"fused"` for either of the last two.

    Shapes:
        reference and query `(B, C, H, W)` → volume `(B, (2R+1)², H, W)`, channel `(dy+R)(2R+1) + (dx+R)`.

    >>> import torch
    >>> from gocor import LocalGOCor
    >>> LocalGOCor(radius=4)(torch.randn(1, 64, 12, 16), torch.randn(1, 64, 12, 16)).shape
    torch.Size([1, 81, 12, 16])
    """

    same_size = True
    requests = ("auto", "filters", "fused", "tiles", "gram-kernels", "tensor-cores")

    def __init__(
        self,
        radius: int = 4,
        iters: int = 3,
        initializer: str = "simple",
        query_objective: bool = False,
        **options: Any,
    ) -> None:
        check_count("radius", radius)
        shared = GOCorOptions(iters=iters, initializer=initializer, query_objective=query_objective, **options)
        super().__init__(shared, stabilizer=1e-6)
        self.radius = radius

    def filters(self, reference: Tensor, iters: int | None = None) -> Tensor:
        """The optimised filter map `(B, C, H, W)`, in float32 or wider.

        It depends on the reference alone, so that it can be optimised once and correlated with any query, at any
        positions and scales. Correlating it with a query within the radius gives the module's volume.

        Args:
            reference: `(B, C, H, W)`.
            iters: number of steepest descent iterations, in place of the module's own.
        """
        if self.query_objective is not None:
            raise InputError("with a query objective the filters depend on the query: they are not available alone")
        iters = self._check_reference(reference, iters)
        with torch.autocast(reference.device.type, enabled=False):
            name = self._form(reference, reference, iters).name
            if name in ("tensor-cores", "gram-kernels"):
                parameters, _ = self._kernel_parameters(reference)
                return operators.local_filters(reference, parameters, self._kernel_options(reference, iters))
            (reference,) = widened(reference)
            problem, start = self._problem(reference, reference), self.initializer(reference)
            if name == "tiles":
                return descend_on_tiles(problem, start, iters, self.radius, volume=False)
            return steepest_descent(problem, start, iters)

    def _form(self, reference: Tensor, query: Tensor, iters: int) -> Form:
        simple = isinstance(self.initializer, SimpleInitializer) and self.initializer.beta.numel() == 1
        return select.choose_local(
            self.form,
            reference,
            radius=self.radius,
            linear_start=simple or isinstance(self.initializer, ZeroInitializer),
            query=self.query_objective is not None,
            gradients=self._needs_gradients(reference, query),
        )

    def _volume(self, reference: Tensor, query: Tensor, iters: int) -> Tensor:
        name = self._form(reference, query, iters).name
        if name in ("tensor-cores", "gram-kernels"):
            parameters, table = self._kernel_parameters(reference)
            options = self._kernel_options(reference, iters)
            if name == "tensor-cores":
                return operators.local_volume(reference, query, parameters, table, options)
            filters = operators.local_filters(reference, parameters, options)
            return local.correlate(filters, query, self.radius, dtype=reference.dtype)
        reference, query = widened(reference, query)
        problem, start = self._problem(reference, query), self.initializer(reference)
        if name == "tiles":
            return descend_on_tiles(problem, start, iters, self.radius)
        return problem.correlate(steepest_descent(problem, start, iters), query)

    def _kernel_parameters(self, reference: Tensor) -> tuple[LocalParameters, Tensor]:
        """Kernel inputs: the parameters, and the table of coefficients for the tensor-core kernel."""

        def compute() -> tuple[LocalParameters, Tensor]:
            maps = self.objective.maps(local_distances(self.radius, torch.float32, reference.device))
            beta = getattr(self.initializer, "beta", None)
            beta = maps.target.new_zeros(1) if beta is None else beta.float()
            absolute_gain, linear_gain, weighted_target = (values.flatten() for values in maps.coefficients())
            decay, step_factor = self._squared_regularization(reference).flatten(), self._step_factor(torch.float32)
            parameters = LocalParameters(beta, absolute_gain, linear_gain, weighted_target, decay, step_factor)
            table = operators.coefficient_table(parameters, self.radius) if self.radius <= 4 else decay
            return parameters, table

        keep = not self._needs_gradients(reference)
        parameters, table = self._derive(compute, self.radius) if keep else compute()
        return self._regularized(parameters, reference), table

    def _kernel_options(self, reference: Tensor, iters: int) -> LocalOptions:
        channels = reference.shape[1]
        stabilizer = channels * getattr(self.initializer, "stabilizer", 1.0)
        return LocalOptions(self.radius, iters, self.objective.eta, self._floor(channels, torch.float32), stabilizer)

    def _floor(self, channels: int, dtype: torch.dtype) -> float:
        # Published filters are D times ours, with the same scores.
        return rounding.step_floor(dtype) if self.scale_free_step else 1e-8 * channels**4

    def _problem(self, reference: Tensor, query: Tensor) -> Problem:
        dtype, side = reference.dtype, 2 * self.radius + 1
        objective, smoothing = self.query_objective, None
        if objective is not None:
            weights = objective.weight1.to(dtype), objective.weight2.to(dtype)
            smoothing = QuerySmoothing(*weights, lambda x: x.unflatten(1, (side, side)), lambda x: x.flatten(1, 2))
        return Problem(
            reference=reference,
            query=query,
            coefficients=self.objective.maps(local_distances(self.radius, dtype, reference.device)).coefficients(),
            eta=self.objective.eta,
            regularization=self._squared_regularization(reference),
            step_factor=self._step_factor(dtype),
            floor=self._floor(reference.shape[1], dtype),
            correlate=partial(local.correlate, radius=self.radius, exact=True),
            adjoint=partial(local.adjoint_reference, radius=self.radius, exact=True),
            smoothing=smoothing,
        )

    def _transpose(self, volume: Tensor, reference: Tensor) -> Tensor:
        return transpose_local_volume(volume, self.radius)

    def extra_repr(self) -> str:
        """Options, for `print`."""
        return f"radius={self.radius}, {super().extra_repr()}"
