"""Global GOCor: every filter against every pixel."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..ops import global_correlation, global_correlation_adjoint_reference, select, transpose_global_volume
from ..ops.descent import operators, rounding
from ..ops.descent.gram import gram_descent
from ..ops.descent.operators import GlobalOptions, GlobalParameters
from ..ops.descent.reference import Coefficients, Problem, steepest_descent
from ..ops.descent.smoothing import QuerySmoothing, separate_taps
from ..ops.descent.strips import descend_in_strips
from ..ops.forms import Form
from ..utils.checks import check_feature_pair
from ..utils.errors import InputError
from .basis import by_pair, displacement_distances
from .gocor import GOCor, widened
from .options import GOCorOptions

PUBLISHED_FLOOR = 1e-8


class GlobalGOCor(GOCor):
    """Drop-in replacement of a global correlation layer (paper, sec. 3).

    For a reference map f^r and a query map f^q it returns `C(w, f^q)`, with filters w that minimise

        L(w) = ½‖σ_η(C(w, f^r); v⁺, v⁻) − y‖² + ½‖R ∗ C(w, f^q)‖² + ½λ²‖w‖²

    by a few steps of steepest descent. y, v⁺, v⁻, R, λ, the step factor and the initial filters are learnt. The
    networks of the paper L2-normalise the features over channels before.

    Where paper and published code differ, this module follows the code: the ½ in front of the objective (without it
    the step is twice too long), a learnt step factor, initial filters f/‖f‖² and not f/‖f‖, one step length per
    location without query objective, and the order of R's two kernels.

    Args:
        channels: D; the flexible initialisers learn one value per channel, the others accept any D.
        iters: number of steepest descent iterations.
        initializer: initial filters, see `GOCorOptions`.
        query_objective: add the query objective.
        **options: see `GOCorOptions`. `form` is `"auto"`, `"filters"`, `"strips"` or `"gram"`.

    Shapes:
        reference `(B, C, Hr, Wr)`, query `(B, C, Hq, Wq)` → volume `(B, Hq·Wq, Hr, Wr)`, query positions row by row.

    >>> import torch
    >>> from gocor import GlobalGOCor
    >>> GlobalGOCor(channels=64)(torch.randn(1, 64, 8, 8), torch.randn(1, 64, 8, 8)).shape
    torch.Size([1, 64, 8, 8])
    """

    same_size = False
    requests = ("auto", "filters", "strips", "gram")

    def __init__(
        self,
        channels: int = 512,
        iters: int = 3,
        initializer: str = "flexible-context",
        query_objective: bool = True,
        **options: Any,
    ) -> None:
        shared = GOCorOptions(
            iters=iters, initializer=initializer, query_objective=query_objective, channels=channels, **options
        )
        super().__init__(shared, stabilizer=1e-12)  # published code has none, and divides by zero

    def filters(self, reference: Tensor, query: Tensor | None = None, iters: int | None = None) -> Tensor:
        """The optimised filter map `(B, C, Hr, Wr)`, in float32 or wider.

        Correlating it with the query, by `gocor.global_correlation`, gives the module's volume.

        Args:
            reference: `(B, C, Hr, Wr)`.
            query: `(B, C, Hq, Wq)`. Filters depend on it only if the module has a query objective.
            iters: number of steepest descent iterations, in place of the module's own.
        """
        if query is not None:
            reference, query = check_feature_pair(reference, query, same_size=False)
        elif self.query_objective is not None:
            raise InputError("with a query objective the filters depend on the query: pass it")
        iters = self._check_reference(reference, iters)
        with torch.autocast(reference.device.type, enabled=False):
            reference, query = widened(reference, reference if query is None else query)
            return steepest_descent(self._problem(reference, query), self.initializer(reference), iters)

    def _form(self, reference: Tensor, query: Tensor, iters: int) -> Form:
        objective = self.query_objective
        return select.choose_global(
            self.form,
            reference,
            query,
            iters=iters,
            weights=None if objective is None else (objective.weight1, objective.weight2),
            gradients=self._needs_gradients(reference, query),
        )

    def _volume(self, reference: Tensor, query: Tensor, iters: int) -> Tensor:
        name = self._form(reference, query, iters).name
        if name == "gram-kernels":
            stabilizer = reference.shape[1] * getattr(self.initializer, "stabilizer", 1.0)
            options = GlobalOptions(iters, self.objective.eta, self._floor(torch.float32), stabilizer)
            return operators.global_volume(reference, query, self._kernel_parameters(reference), options)
        reference, query = widened(reference, query)
        start = self.initializer(reference)
        if name == "strips":
            return descend_in_strips(partial(self._problem, reference, query), start, iters)
        problem = self._problem(reference, query)
        if name == "gram":
            return gram_descent(problem, start, iters)
        return problem.correlate(steepest_descent(problem, start, iters), query)

    def _kernel_parameters(self, reference: Tensor) -> GlobalParameters:
        device = reference.device

        def compute() -> GlobalParameters:
            beta, gamma = (getattr(self.initializer, name, None) for name in ("beta", "gamma"))
            squares = torch.arange(math.ceil(self.objective.reach**2) + 2, dtype=torch.float32, device=device)
            taps = first = second = None
            if self.query_objective is not None:
                first, second = separate_taps(self.query_objective.weight1, self.query_objective.weight2)
                taps = (first[:, None, None] * second).sum(3)  # not a matrix product: that may be in TF32
            return GlobalParameters(
                beta=squares.new_zeros(1) if beta is None else beta.float(),
                gamma=None if gamma is None else gamma.float(),
                table=torch.stack(self.objective.maps(squares.sqrt()).coefficients()),
                regularization=self._squared_regularization(reference).flatten(),
                step_factor=self._step_factor(torch.float32),
                taps=taps,
                first=first,
                second=second,
            )

        return self._regularized(self._derive(compute), reference)

    def _floor(self, dtype: torch.dtype) -> float:
        return rounding.step_floor(dtype) if self.scale_free_step else PUBLISHED_FLOOR

    def _problem(self, reference: Tensor, query: Tensor, rows: slice = slice(None)) -> Problem:
        """The problem of some rows of the filter map."""
        (height, width), query_size, dtype = reference.shape[2:], query.shape[2:], reference.dtype
        by_displacement = self.objective.maps(displacement_distances(height, width, dtype, reference.device))
        coefficients = (by_pair(values, height, width, rows) for values in by_displacement.coefficients())
        objective, smoothing = self.query_objective, None
        if objective is not None:
            smoothing = QuerySmoothing(
                objective.weight1.to(dtype),
                objective.weight2.to(dtype),
                fold=lambda scores: scores.unflatten(1, query_size).permute(0, 3, 4, 1, 2),
                unfold=lambda volume: volume.permute(0, 3, 4, 1, 2).flatten(1, 2),
            )
        return Problem(
            reference=reference,
            query=query,
            coefficients=Coefficients(*coefficients),
            eta=self.objective.eta,
            regularization=self._squared_regularization(reference),
            step_factor=self._step_factor(dtype),
            floor=self._floor(dtype),
            correlate=global_correlation,
            adjoint=global_correlation_adjoint_reference,
            smoothing=smoothing,
        )

    def _transpose(self, volume: Tensor, reference: Tensor) -> Tensor:
        return transpose_global_volume(volume, (reference.shape[2], reference.shape[3]))
