"""Local GOCor on a CPU where no gradients are needed: all iterations of a few tiles of filters while they are in cache.

The iteration is that of `descent`. Filters are taken in tiles, as in `ops.tile_columns`, and all scores of a tile's
filters with its window are kept, not only those within the radius of each: the objective's coefficients are zero for
the others, so they neither pull nor count, and correlation and adjoint are plain matrix products. Nothing is copied
between iterations, and every temporary is written in place.
"""

import torch
from torch import Tensor

from ...modules.objective import Coefficients, residual_and_slope
from ...utils.checks import exporting
from .reference import Problem
from .tile_columns import TILE, Columns


def can_descend_on_tiles(features: Tensor, radius: int) -> bool:
    """Whether to: on a CPU, without gradients, and with windows that are larger than what tiles waste."""
    traced = torch.compiler.is_compiling() or exporting()
    return features.device.type == "cpu" and not torch.is_grad_enabled() and not traced and radius >= 2


def volume_on_tiles(problem: Problem, filters: Tensor, iters: int, radius: int) -> Tensor:
    """Optimise a filter map and correlate it with the query.

    Args:
        problem: what to minimise, without query term.
        filters: w⁰ `(B, D, H, W)`.
        iters: number of iterations.
        radius: R.

    Returns:
        Volume `(B, (2R+1)², H, W)`.
    """
    tiling = Columns.of(filters, radius)
    reference, query, tiles = tiling.windows(problem.reference), tiling.windows(problem.query), tiling.tiles(filters)
    coefficients = Coefficients(*(_spread(tiling, values) for values in problem.maps.coefficients()))
    volume = tiling.empty_volume(tiles)
    buffers: list[Tensor] = []
    for part in tiling.parts(len(filters)):
        window, w = reference[part].flatten(0, 2), tiles[part].flatten(0, 2).flatten(1, 2)
        if not buffers or len(buffers[0]) != len(w):
            product = (len(w), w.shape[1], window.shape[1])
            buffers = [w.new_empty(shape) for shape in (product, product, product, product, w.shape)]
        w = _descend(problem, coefficients, window, w.clone(), iters, buffers)
        tiling.read(torch.bmm(w, query[part].flatten(0, 2).mT, out=buffers[0]), tiling.split(volume)[part])
    return volume[:, :, : tiling.height, : tiling.width].contiguous()


def _descend(
    problem: Problem, coefficients: Coefficients, window: Tensor, w: Tensor, iters: int, buffers: list[Tensor]
) -> Tensor:
    """Iterate on tiles of filters `(n, S·T, D)`, in place, with their windows `(n, (S+2R)(T+2R), D)`."""
    scores, slope, pull, change, gradient = buffers
    decay, factor = problem.regularization.item(), problem.step_factor.item()
    torch.bmm(w, window.mT, out=scores)
    for _ in range(iters):
        slope = _slope_and_pull(scores, coefficients, problem.eta, slope, pull)
        torch.baddbmm(w, pull, window, beta=decay, out=gradient)
        torch.bmm(gradient, window.mT, out=change)
        numerator = gradient.square().sum(2, keepdim=True)
        along = torch.mul(slope, change, out=pull)
        denominator = along.square_().sum(2, keepdim=True).add_(numerator, alpha=decay)
        step = numerator.div_(denominator.clamp_(min=problem.floor)).mul_(-factor)
        w.addcmul_(step, gradient)
        scores.addcmul_(step, change)
    return w


def _slope_and_pull(scores: Tensor, coefficients: Coefficients, eta: float, slope: Tensor, pull: Tensor) -> Tensor:
    """Derivative q of the residual r by the score, and q·r into `pull`."""
    if eta != 0:
        residual, slope = residual_and_slope(scores, coefficients, eta)
        torch.mul(slope, residual, out=pull)
        return slope
    bend, slant, goal = coefficients
    torch.addcmul(slant, bend, torch.sign(scores, out=slope), out=slope)
    torch.mul(slope, scores, out=pull).sub_(goal).mul_(slope)
    return slope


def _spread(tiling: Columns, values: Tensor) -> Tensor:
    """Values by displacement → by filter of a tile and pixel of its window `(S·T, (S+2R)(T+2R))`, zero beyond R."""
    window_y, window_x = tiling.window
    spread = values.new_zeros(1, TILE[0] * TILE[1], window_y * window_x)
    band = tiling.band(spread)
    band.copy_(values.reshape(band.shape[-2:]).expand(band.shape))
    return spread
