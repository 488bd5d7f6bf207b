"""Local GOCor: every filter against the pixels around it."""

from functools import partial
from typing import Literal

from torch import Tensor

from ..ops import local_correlation, local_correlation_adjoint_reference, transpose_local_volume
from ..ops.checks import check_choice, check_count, exporting
from .basis import local_distances
from .descent import Problem, scale_free_floor, steepest_descent
from .fused import can_fuse, fused_descent
from .gocor import GOCor, Objective


class LocalGOCor(GOCor):
    """Drop-in replacement of a local correlation layer (paper, sec. 3).

    The same objective as `GlobalGOCor`, over the (2R+1)² pixels around each filter. Published code correlates by the
    mean over channels and rescales the regulariser; with filters divided by D that is this module's sum over channels
    with λ² as it stands, value for value. Features are usually not normalised before.

    Args:
        radius: search radius R.
        iters: steepest descent iterations.
        initializer: `"zero"`, `"simple"`, `"flexible-simple"`, `"context"` or `"flexible-context"`.
        query_objective: whether the objective has the query term (the paper found it harmful here). R's first kernel
            then acts on positions, the second on displacements.
        channels: D, needed by the flexible initialisers only.
        form: how to iterate, `"filters"` in plain operators, `"fused"` in one kernel (on a GPU with Triton, R ≤ 4,
            without query term; differentiable once), or `"auto"`, fused where that is possible.
        scale_free_step: whether the step's denominator is free of an absolute floor. Published code has one of
            1e-8 in units of 1/D⁴, which stalls the optimisation of small or unit-norm features.

    The other options are those of `GlobalGOCor`.

    Shapes:
        reference and query `(B, C, H, W)` → volume `(B, (2R+1)², H, W)`, channel `(dy+R)(2R+1) + (dx+R)`.

    >>> import torch
    >>> from gocor import LocalGOCor
    >>> LocalGOCor(radius=4)(torch.randn(1, 64, 12, 16), torch.randn(1, 64, 12, 16)).shape
    torch.Size([1, 81, 12, 16])
    """

    same_size = True

    def __init__(
        self,
        radius: int = 4,
        iters: int = 3,
        initializer: str = "simple",
        query_objective: bool = False,
        *,
        channels: int | None = None,
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
        form: Literal["auto", "filters", "fused"] = "auto",
    ) -> None:
        check_count("radius", radius)
        check_choice("form", form, ("auto", "filters", "fused"))
        if form == "fused" and query_objective:
            raise ValueError("the fused iteration has no query term: form='fused' goes with query_objective=False")
        super().__init__(
            iters=iters,
            initializer=initializer,
            channels=channels,
            stabilizer=1e-6,
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
        self.radius = radius
        self.form = form

    def _volume(self, reference: Tensor, query: Tensor, iters: int) -> Tensor:
        problem, filters = self._problem(reference, query), self.initializer(reference)
        fused = self.form != "filters" and not exporting() and can_fuse(problem, self.radius)
        if self.form == "fused" and not fused:
            raise ValueError("form='fused' needs float32 or 16-bit inputs on a GPU, Triton, and a radius of 4 or less")
        descend = partial(fused_descent, radius=self.radius) if fused else steepest_descent
        return problem.correlate(descend(problem, filters, iters=iters), query)

    def _problem(self, reference: Tensor, query: Tensor) -> Problem:
        dtype, side = reference.dtype, 2 * self.radius + 1
        published_floor = 1e-8 * reference.shape[1] ** 4  # published filters are D times ours, their scores the same
        return Problem(
            reference=reference,
            query=query,
            maps=self.objective.maps(local_distances(self.radius, dtype, reference.device)),
            eta=self.objective.eta,
            regularization=self._squared_regularization(dtype),
            step_factor=self._step_factor(dtype),
            floor=scale_free_floor(dtype) if self.scale_free_step else published_floor,
            correlate=partial(local_correlation, radius=self.radius, normalize="sum"),
            adjoint=partial(local_correlation_adjoint_reference, radius=self.radius, normalize="sum"),
            regularizer=self.query_objective,
            fold=lambda scores: scores.unflatten(1, (side, side)),
            unfold=lambda volume: volume.flatten(1, 2),
        )

    def _transpose(self, volume: Tensor, reference: Tensor) -> Tensor:
        return transpose_local_volume(volume, self.radius)

    def extra_repr(self) -> str:
        """Options, for `print`."""
        return f"radius={self.radius}, {super().extra_repr()}"
