"""Background motion: drawn on the CPU as matrices and coefficients, evaluated for all pixels on the device."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...utils.arrays import Array
from .basis import COEFFICIENTS, PLATE, basis_at, split_tf32
from .settings import Motion

MIN_CORNER_DEPTH = 0.1  # least depth of the image's corners, relative to its centre
ATTEMPTS = 3  # The largest useful corner moves are 0.7; halved twice, they cannot fold an image.
MIN_DEPTH = 0.05  # The denominator of a projective map is clamped to this; only far outside of the image is it smaller.


@dataclass(frozen=True)
class Frame:
    """Size of the images, and their normalised coordinates n: origin in the centre, unit half of the shorter side."""

    height: int
    width: int

    @property
    def half(self) -> float:
        """Unit of the coordinates n in pixels: the distance from the centre to the outermost pixel's centre."""
        return (min(self.height, self.width) - 1) / 2

    @property
    def centre(self) -> Array:
        """Centre of the image, `(x, y)` in pixels."""
        return np.array([(self.width - 1) / 2, (self.height - 1) / 2])

    @property
    def extent(self) -> tuple[float, float]:
        """Coordinates n of the outermost pixels, `(x, y)`."""
        return (self.width - 1) / (2 * self.half), (self.height - 1) / (2 * self.half)

    @property
    def to_pixels(self) -> Array:
        """Matrix `(3, 3)` that maps coordinates n to pixels."""
        return np.array([[self.half, 0, self.centre[0]], [0, self.half, self.centre[1]], [0, 0, 1]])


@dataclass(frozen=True)
class Warps:
    """Drawn motions: the point n of the reference corresponds to `matrix · (n + coefficients · basis(n))` in the query.

    Attributes:
        kind: `(B,)`, index of the `Motion` that each was drawn from.
        matrix: `(B, 3, 3)`, maps coordinates n to pixels of the query.
        coefficients: `(B, 2, COEFFICIENTS)`, of the non-rigid part.
    """

    kind: NDArray[np.int64]
    matrix: Array
    coefficients: Array


def adjugate(matrix: Array) -> Array:
    """Adjugate of matrices `(..., 3, 3)`: the inverse times the determinant, which is defined if that is zero, too."""
    a, b, c = (matrix[..., i, :] for i in range(3))
    return np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)], -1)


def draw_warps(motions: tuple[Motion, ...], count: int, frame: Frame, rng: np.random.Generator) -> Warps:
    """Draw the motions of `count` pairs."""
    weights = np.array([motion.weight for motion in motions])
    kind = rng.choice(len(motions), count, p=weights / weights.sum())

    def setting(name: str) -> Array:
        """A setting of each pair's motion, `(B, ...)`."""
        return np.array([getattr(motion, name) for motion in motions], np.float64)[kind]

    low, high = setting("strength").T
    strength = low + (high - low) * rng.random(count)
    affine = _draw_affine(setting, strength, rng)
    affine[setting("horizontal") > 0, 1] = (0, 1, 0)
    perspective = _draw_perspective(setting, strength, frame, rng)

    coefficients = rng.standard_normal((count, 2, COEFFICIENTS))
    bent = rng.random(count) < setting("bend_share")
    coefficients[..., : PLATE**2] *= (setting("plate") * strength)[:, None, None]
    coefficients[..., PLATE**2 :] *= (setting("bend") * strength * bent)[:, None, None]
    coefficients[setting("horizontal") > 0, 1] = 0
    matrix = frame.to_pixels @ perspective @ affine
    return Warps(kind, matrix, coefficients)


def _draw_affine(setting: Callable[[str], Array], strength: Array, rng: np.random.Generator) -> Array:
    """Draw `exp(zoom) · R(rotation) · R(-φ) · diag(λ₁, λ₂) · R(φ) · shear`, followed by the shift: `(B, 3, 3)`."""
    count = len(strength)
    phi = np.deg2rad(rng.uniform(-1, 1, count) * setting("stretch_angle"))
    unit = rng.uniform(-1, 1, (5, count)) * strength
    angle = np.deg2rad(unit[0] * setting("rotation"))
    stretch = setting("stretch")
    scales = 1 + (rng.uniform(stretch[:, 0], stretch[:, 1], (2, count)) - 1) * strength
    diagonal = np.zeros((count, 2, 2))
    diagonal[:, 0, 0], diagonal[:, 1, 1] = scales
    shear = np.zeros((count, 2, 2))
    shear[:, 0, 0] = shear[:, 1, 1] = 1
    shear[:, 0, 1] = unit[2] * setting("shear")
    affine = np.zeros((count, 3, 3))
    linear = rotation_matrix(angle) @ rotation_matrix(-phi) @ diagonal @ rotation_matrix(phi) @ shear
    affine[:, :2, :2] = np.exp(unit[1] * setting("zoom"))[:, None, None] * linear
    affine[:, 0, 2], affine[:, 1, 2] = unit[3:] * setting("shift")
    affine[:, 2, 2] = 1
    return affine


def rotation_matrix(angle: Array) -> Array:
    """Matrices `(..., 2, 2)` that rotate by angles in radians, from x towards y."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)


def _draw_perspective(
    setting: Callable[[str], Array], strength: Array, frame: Frame, rng: np.random.Generator
) -> Array:
    """Draw projective maps `(B, 3, 3)` that move the image's corners; their depth is 1 in the image's centre."""
    moves = rng.uniform(-1, 1, (len(strength), 4, 2)) * (setting("corners") * strength)[:, None, None]
    step = setting("corner_step")[:, None, None]
    moves = np.where(step > 0, np.floor(moves / np.where(step > 0, step, 1)) * step, moves)
    inverse = (setting("inverse_corners") > 0)[:, None, None]
    corners = np.concatenate([corners_of(frame.extent), np.ones((4, 1))], 1)
    for _ in range(ATTEMPTS):
        matrix = corners_to_matrix(moves, frame.extent)
        matrix = np.where(inverse, adjugate(matrix), matrix)
        matrix /= matrix[:, 2:, 2:]
        # The horizon must not cross the image or come close to it.
        crossed = ((matrix[:, 2] @ corners.T).min(1) < MIN_CORNER_DEPTH) | ~_convex(corners_of(frame.extent) + moves)
        moves = np.where(crossed[:, None, None], moves / 2, moves)
    return matrix


def _convex(corners: Array) -> NDArray[np.bool_]:
    """Whether quadrilaterals `(B, 4, 2)`, whose corners are clockwise in the image, are convex."""
    before, after = corners - np.roll(corners, 1, 1), np.roll(corners, -1, 1) - corners
    turns = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
    return np.asarray(turns.min(1) > 0)


def corners_of(extent: tuple[float, float]) -> Array:
    """Corners of the image in coordinates n, clockwise from the upper left: `(4, 2)`."""
    return np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1]]) * extent


def corners_to_matrix(moves: Array, extent: tuple[float, float]) -> Array:
    """Projective maps `(B, 3, 3)` that move the image's corners by `(B, 4, 2)`.

    The closed form maps the unit square (P. Heckbert, "Fundamentals of texture mapping and image warping", 1989).
    """
    p0, p1, p2, p3 = (corners_of(extent) + moves).swapaxes(0, 1)
    total, d1, d2 = p0 - p1 + p2 - p3, p1 - p2, p3 - p2
    determinant = d1[:, 0] * d2[:, 1] - d1[:, 1] * d2[:, 0]
    g = (total[:, 0] * d2[:, 1] - total[:, 1] * d2[:, 0]) / determinant
    h = (d1[:, 0] * total[:, 1] - d1[:, 1] * total[:, 0]) / determinant
    matrix = np.ones((len(moves), 3, 3))
    matrix[:, :2, 0] = p1 - p0 + g[:, None] * p1
    matrix[:, :2, 1] = p3 - p0 + h[:, None] * p3
    matrix[:, :2, 2] = p0
    matrix[:, 2, 0], matrix[:, 2, 1] = g, h
    to_unit = np.array([[0.5 / extent[0], 0, 0.5], [0, 0.5 / extent[1], 0.5], [0, 0, 1]])
    return matrix @ to_unit


class WarpGrid:
    """Evaluates motions for all pixels of the images, on a device."""

    def __init__(self, frame: Frame, device: torch.device) -> None:
        ys, xs = np.meshgrid(np.arange(frame.height), np.arange(frame.width), indexing="ij")
        pixels = np.stack([xs, ys], -1).reshape(-1, 2).astype(np.float64)
        normalised = (pixels - frame.centre) / frame.half  # (HW, 2)
        self.frame = frame
        self.normalised = torch.from_numpy(normalised.T.astype(np.float32)).to(device)  # (2, HW)
        basis = torch.from_numpy(np.ascontiguousarray(basis_at(normalised, frame.extent).T.astype(np.float32)))
        self._split = device.type == "cuda"
        if self._split:  # With both operands split, the product has float32's precision even if TF32 is enabled.
            high, low = split_tf32(basis)
            basis = torch.cat([high, low, high])
        self._basis = basis.to(device)  # (K, HW)

    def __call__(self, matrix: Tensor, coefficients: Tensor | None) -> Tensor:
        """Positions in the query of all pixels of the reference, `(B, 2, H, W)` in pixels.

        Args:
            matrix: `(B, 3, 3)`, see `Warps`.
            coefficients: `(B, 2, COEFFICIENTS)`; None if no motion has a non-rigid part.
        """
        x, y = self.normalised
        if coefficients is not None:
            flat = coefficients.flatten(0, 1)  # (2B, K)
            if self._split:
                high, low = split_tf32(flat)
                flat = torch.cat([high, high, low], 1)
            offset = (flat @ self._basis).view(len(matrix), 2, -1)
            x, y = x + offset[:, 0], y + offset[:, 1]  # (B, HW)
        else:
            x, y = x.expand(len(matrix), -1), y.expand(len(matrix), -1)
        return project_grid(matrix, x, y).view(len(matrix), 2, self.frame.height, self.frame.width)


def project_grid(matrix: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Map points `(B, N)` by homographies `(B, 3, 3)`: `(B, 2, N)`.

    The products are taken element by element, because a matrix product might be rounded to TF32.
    """
    m = matrix[..., None]  # (B, 3, 3, 1)
    depth = torch.addcmul(torch.addcmul(m[:, 2, 2], m[:, 2, 0], x), m[:, 2, 1], y).clamp(min=MIN_DEPTH).reciprocal()
    u = torch.addcmul(torch.addcmul(m[:, 0, 2], m[:, 0, 0], x), m[:, 0, 1], y) * depth
    v = torch.addcmul(torch.addcmul(m[:, 1, 2], m[:, 1, 0], x), m[:, 1, 1], y) * depth
    return torch.stack([u, v], 1)
