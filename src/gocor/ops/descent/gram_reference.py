"""Local GOCor's iterations in Gram space, in plain torch: what `gram_triton` computes.

At a location, let F hold the features around it (D×(2R+1)², zero outside of the image) and G = FᵀF. Every gradient is a
combination of them, so the filter stays w = F·b, starting from b⁰ = γδ (w⁰ = γf, γ = β/(‖f‖² + ε)). With c = G·b its
scores, q and r slope and residual of the reference term, one iteration is

    u = q·r + λ²b,   t = G·u,   α = uᵀt / (‖q·t‖² + λ²uᵀt),   b ← b − sα·u,   c ← c − sα·t,

and α = 0 where ‖g‖² = uᵀt is but the rounding of g = F·u: around a location in a flat region G is singular, and u does
not vanish when g does.
D is gone from the loop. G's entries are values of the autocorrelation A of radius 2R, G[d, d′] = A[p+d, d′−d], which
neighbouring locations share.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import rounding

CHUNK = 2048  # locations at a time: G takes 26 kB each for R = 4


class Options(NamedTuple):
    """What is not a tensor."""

    radius: int
    iters: int
    eta: float
    floor: float
    stabilizer: float


class Gradients(NamedTuple):
    """Of the autocorrelation `(B, (4R+1)², H, W)`, of β, of v⁺(1−m)/2, v⁺(1+m)/2 and v⁺y′ `((2R+1)²,)`, of λ² and s."""

    gram: Tensor
    beta: Tensor
    bend: Tensor
    slant: Tensor
    goal: Tensor
    regularization: Tensor
    step_factor: Tensor


def descend(gram: Tensor, parameters: tuple[Tensor, ...], options: Options) -> Tensor:
    """Iterate at every location.

    Args:
        gram: A, `(B, H, W, (4R+1)²)`.
        parameters: β (a scalar); v⁺(1−m)/2, v⁺(1+m)/2 and v⁺y′ by displacement, `((2R+1)²,)`; λ² and s (scalars).
        options: radius R, iterations, η, floor of the step's denominator, ε.

    Returns:
        b, `(B, (2R+1)², H, W)`.
    """
    batch, height, width, _ = gram.shape
    chunks = _chunks(gram, options.radius)
    parts = [_forward(products, row, energy, parameters, options)[0] for _, products, row, energy in chunks]
    return torch.cat(parts).view(batch, height, width, -1).permute(0, 3, 1, 2).contiguous()


def descend_gradients(
    grad: Tensor, gram: Tensor, parameters: tuple[Tensor, ...], options: Options, *, of_gram: bool = True
) -> Gradients:
    """Gradients of `descend`, bars for gradients, each step in reverse.

    Args:
        grad: of b, `(B, (2R+1)², H, W)`.
        gram: as in `descend`.
        parameters: as in `descend`.
        options: as in `descend`.
        of_gram: whether the gradient of the autocorrelation is wanted; else it is empty.
    """
    beta, bend, slant, goal, decay, factor = parameters
    eta, floor = options.eta, options.floor
    batch, height, width, wide = gram.shape
    padded = F.pad(gram.new_zeros(batch, height, width, wide), _border(options.radius))
    bars = [torch.zeros_like(parameter) for parameter in parameters]
    bar_beta, bar_bend, bar_slant, bar_goal, bar_decay, bar_factor = bars
    grads = grad.permute(0, 2, 3, 1).reshape(batch * height * width, -1)
    for where, products, row, energy in _chunks(gram, options.radius):
        _, states = _forward(products, row, energy, parameters, options)
        bar_b = grads[where[0]]
        bar_c, bar_products = torch.zeros_like(bar_b), torch.zeros_like(products)
        goes_on = torch.ones_like(energy, dtype=torch.bool)  # else the step led to an optimum, for every s nearby
        for c, b, u, t in reversed(states):
            magnitude, direction, curve = _robust(c, eta)
            slope, residual = bend * direction + slant, bend * magnitude + slant * c - goal
            numerator, along = (u * t).sum(1, keepdim=True).clamp(min=0), slope * t
            curvature = along.square().sum(1, keepdim=True) + decay * numerator
            known = _known(numerator, u, products)
            alpha = torch.where(known, numerator / curvature.clamp(min=floor), 0)
            # b′ = b − s·α·u and c′ = c − s·α·t
            bar_step = -(bar_b * u + bar_c * t).sum(1, keepdim=True)
            bar_factor += torch.where(goes_on, bar_step * alpha, 0).sum()
            goes_on = known
            # α = uᵀt / max(‖q·t‖² + λ²uᵀt, floor)
            bar_alpha = torch.where(known, bar_step * factor / curvature.clamp(min=floor), 0)
            bar_curvature = torch.where(curvature >= floor, -bar_alpha * alpha, 0)
            bar_numerator = bar_alpha + decay * bar_curvature
            bar_decay += (bar_curvature * numerator).sum()
            bar_slope = 2 * bar_curvature * along * t
            bar_t = 2 * bar_curvature * slope * along - factor * alpha * bar_c + bar_numerator * u
            # t = G·u and u = q·r + λ²b
            bar_products += bar_t.unsqueeze(2) * u.unsqueeze(1)
            bar_u = bar_numerator * t - factor * alpha * bar_b + torch.bmm(products, bar_t.unsqueeze(2)).squeeze(2)
            bar_decay += (bar_u * b).sum()
            bar_b = bar_b + decay * bar_u
            # q and r of the scores and of the coefficients
            bar_slope, bar_residual = bar_slope + bar_u * residual, bar_u * slope
            bar_c = bar_c + bar_residual * slope + bar_slope * bend * curve
            bar_bend += (bar_residual * magnitude + bar_slope * direction).sum(0)
            bar_slant += (bar_residual * c + bar_slope).sum(0)
            bar_goal -= bar_residual.sum(0)
        # c⁰ = γ·A[p] and b⁰ = γδ, with γ = β/(‖f‖² + ε)
        centre = row.shape[1] // 2
        start = beta / (energy + options.stabilizer)
        bar_start = bar_b[:, centre : centre + 1] + (row * bar_c).sum(1, keepdim=True)
        bar_beta += (bar_start / (energy + options.stabilizer)).sum()
        bar_row = start * bar_c
        bar_row[:, centre] -= (bar_start * start / (energy + options.stabilizer)).squeeze(1)
        bar_products[:, centre] += bar_row
        if of_gram:
            _add_to_gram(padded, bar_products, where, options.radius)
    inner = padded[:, options.radius : options.radius + height, options.radius : options.radius + width]
    return Gradients(inner.permute(0, 3, 1, 2).contiguous() if of_gram else inner.new_empty(0), *bars)


def _forward(
    products: Tensor, row: Tensor, energy: Tensor, parameters: tuple[Tensor, ...], options: Options
) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
    """The result b of a chunk, `(n, K)`, and c, b, u, t of every iteration."""
    beta, bend, slant, goal, decay, factor = parameters
    start = beta / (energy + options.stabilizer)
    scores, coefficients = start * row, torch.zeros_like(row)
    coefficients[:, row.shape[1] // 2] = start.squeeze(1)
    states: list[tuple[Tensor, ...]] = []
    for _ in range(options.iters):
        magnitude, direction, _ = _robust(scores, options.eta)
        slope, residual = bend * direction + slant, bend * magnitude + slant * scores - goal
        u = slope * residual + decay * coefficients
        change = torch.bmm(products, u.unsqueeze(2)).squeeze(2)
        numerator = (u * change).sum(1, keepdim=True).clamp(min=0)  # ‖g‖² may round below zero
        denominator = (slope * change).square().sum(1, keepdim=True) + decay * numerator
        step = torch.where(_known(numerator, u, products), factor * numerator / denominator.clamp(min=options.floor), 0)
        states.append((scores, coefficients, u, change))
        coefficients = coefficients - step * u
        scores = scores - step * change
    return coefficients, states


def _known(numerator: Tensor, u: Tensor, products: Tensor) -> Tensor:
    """Whether ‖g‖² is more than the rounding of g = F·u."""
    terms = (u.square() * products.diagonal(dim1=1, dim2=2)).sum(1, keepdim=True)
    return numerator > rounding.of_gradient(numerator.dtype) * terms


def _robust(scores: Tensor, eta: float) -> tuple[Tensor, Tensor, Tensor]:
    """√(c² + η²) − η, and its first two derivatives."""
    if eta == 0:
        return scores.abs(), scores.sign(), torch.zeros_like(scores)
    root = (scores.square() + eta * eta).sqrt()
    return root - eta, scores / root, eta * eta / root**3


def _border(radius: int) -> tuple[int, ...]:
    return (0, 0, radius, radius, radius, radius)


def _indices(radius: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and columns of the displacements `((2R+1)²,)`, and where in A's last dimension d′ − d is, `(K, K)`."""
    axis = torch.arange(2 * radius + 1, device=device)
    y, x = axis.repeat_interleave(2 * radius + 1), axis.repeat(2 * radius + 1)
    difference = (y[None] - y[:, None] + 2 * radius) * (4 * radius + 1) + x[None] - x[:, None] + 2 * radius
    return y, x, difference


def _chunks(gram: Tensor, radius: int) -> Iterator[tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor]]:
    """By chunks: locations `(flat, batch, y, x)`, G `(n, K, K)`, A within the radius `(n, K)` and ‖f‖² `(n, 1)`."""
    batch, height, width, _ = gram.shape
    y, x, difference = _indices(radius, gram.device)
    centre = difference[len(difference) // 2]
    padded = F.pad(gram, _border(radius))
    for start in range(0, batch * height * width, CHUNK):
        flat = torch.arange(start, min(start + CHUNK, batch * height * width), device=gram.device)
        where = flat, flat // (height * width), flat // width % height, flat % width
        around = padded[where[1][:, None], where[2][:, None] + y, where[3][:, None] + x]  # (n, K, (4R+1)²)
        products = around.gather(2, difference.expand(len(flat), -1, -1))
        row = gram[where[1], where[2], where[3]][:, centre]
        yield where, products, row, row[:, len(centre) // 2].unsqueeze(1)


def _add_to_gram(padded: Tensor, bar_products: Tensor, where: tuple[Tensor, ...], radius: int) -> None:
    y, x, difference = _indices(radius, padded.device)
    index = (where[1][:, None, None], (where[2][:, None] + y).unsqueeze(2), (where[3][:, None] + x).unsqueeze(2))
    padded.index_put_((*index, difference.expand(len(where[0]), -1, -1)), bar_products, accumulate=True)
