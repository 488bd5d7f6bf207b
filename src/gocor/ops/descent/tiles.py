"""Local GOCor on a CPU without gradients: all iterations of a few tiles of filters while these are in the cache.

The iteration is that of `reference.steepest_descent`. It keeps all scores of a tile's filters with the tile's window
(see `correlation.tiling`), not only those within the radius of each filter: beyond the radius the objective's
coefficients are zero, so these scores contribute nothing, and correlation and adjoint are plain matrix products.
Nothing is copied between iterations, and every temporary is written in place.
"""

import torch
from torch import Tensor

from ..correlation.tiling import TILE, Tiling
from .reference import Coefficients, Problem, residual_and_slope


def descend_on_tiles(problem: Problem, filters: Tensor, iters: int, radius: int, *, volume: bool = True) -> Tensor:
    """Optimise a filter map and correlate it with the query.

    Args:
        problem: what to minimise, without query objective.
        filters: w⁰ `(B, D, H, W)`.
        iters: number of iterations.
        radius: R.
        volume: whether to return the volume `(B, (2R+1)², H, W)` or the filters `(B, D, H, W)`.
    """
    tiling = Tiling.of(filters, radius)
    reference, tiles = tiling.windows(problem.reference), tiling.tiles(filters)
    query = tiling.windows(problem.query) if volume else reference
    coefficients = Coefficients(*(_by_window(tiling, values) for values in problem.coefficients))
    decay = problem.regularization.expand(len(filters), 1, 1, 1)
    maps = tiling.empty_maps((2 * radius + 1) ** 2 if volume else filters.shape[1], tiles)
    out = tiling.split(maps)
    buffers: list[Tensor] = []
    for part in tiling.parts(len(filters)):
        window, w = reference[part].flatten(0, 2), tiles[part].flatten(0, 2).flatten(1, 2).clone()
        if not buffers or len(buffers[0]) != len(w):
            product = (len(w), w.shape[1], window.shape[1])
            buffers = [w.new_empty(shape) for shape in (product, product, product, product, w.shape)]
        tiles_per_sample = len(w) // len(decay[part[0]])
        own_decay = decay[part[0]].view(-1, 1, 1).repeat_interleave(tiles_per_sample, 0)  # (n, 1, 1)
        _descend(problem, coefficients, own_decay, window, w, iters, buffers)
        if volume:
            tiling.read_band(torch.bmm(w, query[part].flatten(0, 2).mT, out=buffers[0]), out[part])
        else:
            out[part].copy_(w.view(out[part].shape))
    return tiling.crop(maps)


def _descend(
    problem: Problem,
    coefficients: Coefficients,
    decay: Tensor,
    window: Tensor,
    w: Tensor,
    iters: int,
    buffers: list[Tensor],
) -> None:
    """Iterate on tiles of filters `(n, S·T, D)`, in place, with their windows `(n, (S+2R)(T+2R), D)`."""
    scores, slope, weights, change, gradient = buffers
    torch.bmm(w, window.mT, out=scores)
    for _ in range(iters):
        slope = _slope_and_weights(scores, coefficients, problem.eta, slope, weights)
        torch.bmm(weights, window, out=gradient).addcmul_(w, decay)
        torch.bmm(gradient, window.mT, out=change)
        numerator = gradient.square().sum(2, keepdim=True)
        along = torch.mul(slope, change, out=weights)
        denominator = along.square_().sum(2, keepdim=True).addcmul_(numerator, decay)
        step = numerator.div_(denominator.clamp_(min=problem.floor)).mul_(problem.step_factor).neg_()
        w.addcmul_(step, gradient)
        scores.addcmul_(step, change)


def _slope_and_weights(
    scores: Tensor, coefficients: Coefficients, eta: float, slope: Tensor, weights: Tensor
) -> Tensor:
    """The slope q of the residual r; writes q·r into `weights`."""
    if eta != 0:
        residual, slope = residual_and_slope(scores, coefficients, eta)
        torch.mul(slope, residual, out=weights)
        return slope
    absolute_gain, linear_gain, weighted_target = coefficients
    torch.addcmul(linear_gain, absolute_gain, torch.sign(scores, out=slope), out=slope)
    torch.mul(slope, scores, out=weights).sub_(weighted_target).mul_(slope)
    return slope


def _by_window(tiling: Tiling, values: Tensor) -> Tensor:
    """Values by displacement → by filter of a tile and pixel of its window `(1, S·T, (S+2R)(T+2R))`, zero beyond R."""
    window_y, window_x = tiling.window
    out = values.new_zeros(1, TILE[0] * TILE[1], window_y * window_x)
    band = tiling.band(out)
    band.copy_(values.reshape(band.shape[-2:]).expand(band.shape))
    return out
