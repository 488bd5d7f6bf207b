"""Local GOCor: every filter against the pixels around it."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from ..ops import local_correlation_adjoint_reference, transpose_local_volume
from ..ops.correlation import local_correlation
from ..ops.descent.fused import fused_volume
from ..ops.descent.gram_reference import Options
from ..ops.descent.reference import Problem, scale_free_floor
from ..ops.descent.tiled_inference import inference_volume, spread
from ..ops.descent.tiles import can_descend_on_tiles, volume_on_tiles
from ..ops.kernels import can_descend, can_tile
from ..utils.checks import check_choice, check_count, exporting
from .basis import local_distances
from .gocor import GOCor, Objective, ParameterState, in_full_precision, recording, state_of
from .initializers import SimpleInitializer, ZeroInitializer


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
        form: how to iterate, `"filters"` in plain operators, `"fused"` in kernels, all iterations in one (on a GPU with
            Triton, R ≤ 8, initialiser `"simple"` or `"zero"`, without query term; differentiable once), or `"auto"`,
            fused where that is possible, and on a CPU, without gradients, on tiles of filters that stay in cache.
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
        if form == "fused" and initializer not in ("simple", "zero"):
            raise ValueError(
                f"the fused iteration starts from 'simple' or 'zero' filters, not from {initializer!r} ones"
            )
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
        self._kept_state: tuple[ParameterState, bool] | None = None
        self._kept: tuple[Tensor, ...] = ()

    def _volume(self, reference: Tensor, query: Tensor, iters: int) -> Tensor:
        starts_plain = isinstance(self.initializer, ZeroInitializer) or (
            isinstance(self.initializer, SimpleInitializer) and self.initializer.beta.numel() == 1
        )
        fused = self.form != "filters" and not exporting() and can_descend(reference, self.radius)
        if fused and starts_plain and self.query_objective is None:
            floor = self._floor(reference.shape[1], torch.float32)
            stabilizer = reference.shape[1] * getattr(self.initializer, "stabilizer", 1.0)
            options = Options(self.radius, iters, self.objective.eta, floor, stabilizer)
            leaves = (reference, query, *self.parameters())
            if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves):
                return fused_volume(reference, query, self._fused_parameters(reference.device), options)
            tiled = can_tile(reference, self.radius)
            parameters = self._kept_parameters(reference.device, tiled)
            return (inference_volume if tiled else fused_volume)(reference, query, parameters, options)
        if self.form == "fused":
            raise ValueError("form='fused' needs float32 or 16-bit inputs on a GPU, Triton, and a radius of 8 or less")
        if self.form == "auto" and self.query_objective is None and can_descend_on_tiles(reference, self.radius):
            reference, query = in_full_precision(reference, query)
            problem = self._problem(reference, query)
            return volume_on_tiles(problem, self.initializer(reference), iters, self.radius)
        return super()._volume(reference, query, iters)

    def _fused_parameters(self, device: torch.device) -> tuple[Tensor, ...]:
        """What `fused_volume` takes."""
        maps = self.objective.maps(local_distances(self.radius, torch.float32, device))
        beta = getattr(self.initializer, "beta", None)
        beta = maps.target.new_zeros(1) if beta is None else beta.float()
        coefficients = (values.flatten() for values in maps.coefficients())
        return beta, *coefficients, self._squared_regularization(torch.float32), self._step_factor(torch.float32)

    def _kept_parameters(self, device: torch.device, tiled: bool) -> tuple[Tensor, ...]:
        """What `fused_volume` takes, or `inference_volume` if tiled, kept until a parameter changes."""
        state = None if torch.compiler.is_compiling() else state_of(self)
        if state is not None and (state, tiled) == self._kept_state:
            return self._kept
        parameters = self._fused_parameters(device)
        if tiled:
            parameters = *parameters, spread(parameters[1:4], self.radius)
        if state is not None and not recording(device):
            self._kept_state, self._kept = (state, tiled), parameters
        return parameters

    def _floor(self, channels: int, dtype: torch.dtype) -> float:
        # Published filters are D times ours, their scores the same.
        return scale_free_floor(dtype) if self.scale_free_step else 1e-8 * channels**4

    def _problem(self, reference: Tensor, query: Tensor) -> Problem:
        dtype, side = reference.dtype, 2 * self.radius + 1
        return Problem(
            reference=reference,
            query=query,
            maps=self.objective.maps(local_distances(self.radius, dtype, reference.device)),
            eta=self.objective.eta,
            regularization=self._squared_regularization(dtype),
            step_factor=self._step_factor(dtype),
            floor=self._floor(reference.shape[1], dtype),
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
