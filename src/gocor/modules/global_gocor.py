"""Global GOCor: every filter against every pixel."""

import math
from typing import Literal

import torch
from torch import Tensor

from ..ops import global_correlation_adjoint_reference, transpose_global_volume
from ..ops.correlation import global_correlation
from ..ops.descent.fused_global import Options, Parameters, fused_global_volume
from ..ops.descent.gram import gram_descent, gram_is_cheaper
from ..ops.descent.reference import Problem, scale_free_floor
from ..ops.descent.smoothing import separate_taps
from ..ops.kernels import can_descend_globally
from ..utils.checks import check_choice, exporting
from .basis import displacement_distances, spread_over_pairs
from .gocor import GOCor, Objective, ParameterState, in_full_precision, recording, state_of
from .objective import TargetMaps

PUBLISHED_FLOOR = 1e-8


class GlobalGOCor(GOCor):
    """Drop-in replacement of a global correlation layer (paper, sec. 3).

    For a reference map f^r and a query map f^q it returns `C(w, f^q)`, with filters w that minimise

        L(w) = ½‖σ_η(C(w, f^r); v⁺, v⁻) − y‖² + ½‖R ∗ C(w, f^q)‖² + ½λ²‖w‖²

    by a few steps of steepest descent; y, v⁺, v⁻, R, λ, the step factor and the initial filters are learnt. The
    networks of the paper L2-normalise the features over channels before.

    Where paper and published code differ this module follows the code: the ½ in front of the objective (without it
    the step is twice too long), a learnt step factor, filters initialised by f/‖f‖² and not f/‖f‖, one step length
    per location when there is no query objective, and the order of R's two kernels.

    Args:
        channels: D; the flexible initialisers learn that many values, the others accept any D.
        iters: steepest descent iterations.
        initializer: `"zero"`, `"simple"`, `"flexible-simple"`, `"context"` or `"flexible-context"`.
        query_objective: whether the objective has the query term.
        reference_objective: `"robust"`, or `"quadratic"` for ‖C(w, f^r) − δ‖².
        knots: N, number of knots of the distance basis.
        spacing: Δ, their distance in feature pixels.
        target_sigma: width of the Gaussian that y′ starts from (0: one at distance 0, zero elsewhere).
        eta: η ≥ 0 of the robust function σ_η.
        query_kernel: side K of R's kernels.
        query_channels: channels between R's two kernels, and after them.
        regularization: λ to start from.
        min_regularization: lower bound of |λ|.
        step_factor: factor of the step length to start from.
        scale_free_step: whether the step's denominator is free of an absolute floor. Published code has one of 1e-8.
        bidirectional: average the volume with the one computed with reference and query exchanged.
        form: how to iterate, `"filters"`, `"gram"` (on correlations alone, exact too) or `"auto"`, the cheaper one.

    Shapes:
        reference `(B, C, Hr, Wr)`, query `(B, C, Hq, Wq)` → volume `(B, Hq·Wq, Hr, Wr)`, query positions row by row.

    >>> import torch
    >>> from gocor import GlobalGOCor
    >>> GlobalGOCor(channels=64)(torch.randn(1, 64, 8, 8), torch.randn(1, 64, 8, 8)).shape
    torch.Size([1, 64, 8, 8])
    """

    same_size = False

    def __init__(
        self,
        channels: int = 512,
        iters: int = 3,
        initializer: str = "flexible-context",
        query_objective: bool = True,
        *,
        reference_objective: Objective = "robust",
        knots: int = 10,
        spacing: float = 0.5,
        target_sigma: float = 1.0,
        eta: float = 0.0,
        query_kernel: int = 3,
        query_channels: tuple[int, int] = (16, 16),
        regularization: float = 1e-2,
        min_regularization: float = 1e-5,
        step_factor: float = 1.0,
        scale_free_step: bool = True,
        bidirectional: bool = False,
        form: Literal["auto", "filters", "gram"] = "auto",
    ) -> None:
        check_choice("form", form, ("auto", "filters", "gram"))
        super().__init__(
            iters=iters,
            initializer=initializer,
            channels=channels,
            stabilizer=1e-12,  # published code has none and divides by zero
            query_objective=query_objective,
            reference_objective=reference_objective,
            knots=knots,
            spacing=spacing,
            target_sigma=target_sigma,
            eta=eta,
            query_kernel=query_kernel,
            query_channels=query_channels,
            regularization=regularization,
            min_regularization=min_regularization,
            step_factor=step_factor,
            scale_free_step=scale_free_step,
            bidirectional=bidirectional,
        )
        self.form = form
        self._kept_state: ParameterState = None
        self._kept: Parameters | None = None

    def _volume(self, reference: Tensor, query: Tensor, iters: int) -> Tensor:
        use_gram = self.form == "gram" or (
            self.form == "auto" and gram_is_cheaper(reference, query, iters, self.query_objective is not None)
        )
        if use_gram and self._can_fuse(reference):
            channels, floor = reference.shape[1], self._floor(torch.float32)
            stabilizer = channels * getattr(self.initializer, "stabilizer", 1.0)
            options = Options(iters, self.objective.eta, floor, stabilizer)
            return fused_global_volume(reference, query, self._fused_parameters(reference.device), options)
        if not use_gram:
            return super()._volume(reference, query, iters)
        reference, query = in_full_precision(reference, query)
        return gram_descent(self._problem(reference, query), self.initializer(reference), iters)

    def _can_fuse(self, features: Tensor) -> bool:
        r = self.query_objective
        fits = can_descend_globally(features, None if r is None else (r.weight1, r.weight2))
        return fits and not torch.is_grad_enabled() and not exporting()

    def _fused_parameters(self, device: torch.device) -> Parameters:
        """What `fused_global_volume` takes, kept until a parameter changes."""
        state = None if torch.compiler.is_compiling() else state_of(self)
        if self._kept is not None and state is not None and state == self._kept_state:
            return self._kept
        beta, gamma = (getattr(self.initializer, name, None) for name in ("beta", "gamma"))
        squares = torch.arange(math.ceil(self.objective.reach**2) + 2, dtype=torch.float32, device=device)
        maps = self.objective.maps(squares.sqrt())
        taps = first = second = None
        if self.query_objective is not None:
            first, second = separate_taps(self.query_objective)
            taps = (first[:, None, None] * second).sum(3)  # not a matrix product: those may be in TF32
        parameters = Parameters(
            torch.zeros(1, device=device) if beta is None else beta.float(),
            None if gamma is None else gamma.float(),
            torch.stack(maps.coefficients()),
            self._squared_regularization(torch.float32),
            self._step_factor(torch.float32),
            taps,
            first,
            second,
        )
        if state is not None and not recording(device):
            self._kept_state, self._kept = state, parameters
        return parameters

    def _floor(self, dtype: torch.dtype) -> float:
        return scale_free_floor(dtype) if self.scale_free_step else PUBLISHED_FLOOR

    def _problem(self, reference: Tensor, query: Tensor) -> Problem:
        (height, width), query_size, dtype = reference.shape[2:], query.shape[2:], reference.dtype
        by_displacement = self.objective.maps(displacement_distances(height, width, dtype, reference.device))
        return Problem(
            reference=reference,
            query=query,
            maps=TargetMaps(*(spread_over_pairs(values, height, width) for values in by_displacement)),
            eta=self.objective.eta,
            regularization=self._squared_regularization(dtype),
            step_factor=self._step_factor(dtype),
            floor=self._floor(dtype),
            correlate=global_correlation,
            adjoint=global_correlation_adjoint_reference,
            regularizer=self.query_objective,
            fold=lambda scores: scores.unflatten(1, query_size).permute(0, 3, 4, 1, 2),
            unfold=lambda volume: volume.permute(0, 3, 4, 1, 2).flatten(1, 2),
        )

    def _transpose(self, volume: Tensor, reference: Tensor) -> Tensor:
        return transpose_global_volume(volume, (reference.shape[2], reference.shape[3]))
