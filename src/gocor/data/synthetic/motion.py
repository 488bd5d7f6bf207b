"""Background motion: drawn on the CPU as matrices and coefficients, evaluated on the device for every pixel."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .basis import COEFFICIENTS, PLATE, basis_at, split_tf32
from .settings import Motion

Array = NDArray[np.float64]

NEAREST = 0.1  # least depth of a corner of the image, of the centre's
HALVINGS = 3  # of moves of corners: 0.7, the largest that make sense, halved twice cannot fold an image
MIN_DEPTH = 0.05  # of a projective map's denominator: in no image that is shown, but far outside, it may come to zero


@dataclass(frozen=True)
class Frame:
    """Images of one size, and their coordinates n: the origin in the centre, half of the shorter side as unit."""

    height: int
    width: int

    @property
    def half(self) -> float:
        """Pixels that are 1 in coordinates n, from the centre of the outermost pixel to the middle."""
        return (min(self.height, self.width) - 1) / 2

    @property
    def centre(self) -> Array:
        """Pixel `(x, y)` in the middle."""
        return np.array([(self.width - 1) / 2, (self.height - 1) / 2])

    @property
    def extent(self) -> tuple[float, float]:
        """The outermost pixels' coordinates n."""
        return (self.width - 1) / (2 * self.half), (self.height - 1) / (2 * self.half)

    @property
    def to_pixels(self) -> Array:
        """Matrix `(3, 3)` from coordinates n to pixels."""
        return np.array([[self.half, 0, self.centre[0]], [0, self.half, self.centre[1]], [0, 0, 1]])


@dataclass(frozen=True)
class Warps:
    """Drawn motions: the reference shows at n what the query shows at pixel `matrix · (n + coefficients · basis(n))`.

    Attributes:
        kind: `(B,)` index of the motion that it was drawn from.
        matrix: `(B, 3, 3)`, from coordinates n to pixels of the query.
        coefficients: `(B, 2, COEFFICIENTS)`.
    """

    kind: NDArray[np.int64]
    matrix: Array
    coefficients: Array


def adjugate(matrix: Array) -> Array:
    """The inverse of `(..., 3, 3)`, but for a factor."""
    rows = [matrix[..., i, :] for i in range(3)]
    return np.stack([_cross(rows[1], rows[2]), _cross(rows[2], rows[0]), _cross(rows[0], rows[1])], -1)


def _cross(a: Array, b: Array) -> Array:
    return a[..., [1, 2, 0]] * b[..., [2, 0, 1]] - a[..., [2, 0, 1]] * b[..., [1, 2, 0]]


def draw_warps(motions: tuple[Motion, ...], count: int, frame: Frame, rng: np.random.Generator) -> Warps:
    """Motions of `count` pairs."""
    weights = np.array([motion.weight for motion in motions])
    kind = rng.choice(len(motions), count, p=weights / weights.sum())

    def of(name: str) -> Array:
        return np.array([getattr(motion, name) for motion in motions], np.float64)[kind]

    low, high = of("strength").T
    strength = low + (high - low) * rng.random(count)
    affine = _draw_affine(of, strength, rng)
    affine[of("horizontal") > 0, 1] = (0, 1, 0)
    perspective = _draw_perspective(of, strength, frame, rng)

    coefficients = rng.standard_normal((count, 2, COEFFICIENTS))
    bent = rng.random(count) < of("bend_share")
    coefficients[..., : PLATE**2] *= (of("plate") * strength)[:, None, None]
    coefficients[..., PLATE**2 :] *= (of("bend") * strength * bent)[:, None, None]
    coefficients[of("horizontal") > 0, 1] = 0
    matrix = frame.to_pixels @ perspective @ affine
    return Warps(kind, matrix, coefficients)


def _draw_affine(of: Callable[[str], Array], strength: Array, rng: np.random.Generator) -> Array:
    """`exp(zoom) · R(rotation) · R(-φ) · diag(λ₁, λ₂) · R(φ) · shear`, then the shift: `(B, 3, 3)`."""
    count = len(strength)
    phi = np.deg2rad(rng.uniform(-1, 1, count) * of("stretch_angle"))
    unit = rng.uniform(-1, 1, (5, count)) * strength
    angle = np.deg2rad(unit[0] * of("rotation"))
    stretch = of("stretch")
    scales = 1 + (rng.uniform(stretch[:, 0], stretch[:, 1], (2, count)) - 1) * strength
    diagonal = np.zeros((count, 2, 2))
    diagonal[:, 0, 0], diagonal[:, 1, 1] = scales
    shear = np.zeros((count, 2, 2))
    shear[:, 0, 0] = shear[:, 1, 1] = 1
    shear[:, 0, 1] = unit[2] * of("shear")
    affine = np.zeros((count, 3, 3))
    linear = rotation_matrix(angle) @ rotation_matrix(-phi) @ diagonal @ rotation_matrix(phi) @ shear
    affine[:, :2, :2] = np.exp(unit[1] * of("zoom"))[:, None, None] * linear
    affine[:, 0, 2], affine[:, 1, 2] = unit[3:] * of("shift")
    affine[:, 2, 2] = 1
    return affine


def rotation_matrix(angle: Array) -> Array:
    """`(..., 2, 2)` for angles in radians, from x towards y."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)


def _draw_perspective(of: Callable[[str], Array], strength: Array, frame: Frame, rng: np.random.Generator) -> Array:
    """Projective maps by moves of corners: `(B, 3, 3)`, depth 1 in the image's centre."""
    moves = rng.uniform(-1, 1, (len(strength), 4, 2)) * (of("corners") * strength)[:, None, None]
    step = of("corner_step")[:, None, None]
    moves = np.where(step > 0, np.floor(moves / np.where(step > 0, step, 1)) * step, moves)
    inverse = (of("inverse_corners") > 0)[:, None, None]
    corners = np.concatenate([corners_of(frame.extent), np.ones((4, 1))], 1)
    for _ in range(HALVINGS):
        matrix = corners_to_matrix(moves, frame.extent)
        matrix = np.where(inverse, adjugate(matrix), matrix)
        matrix /= matrix[:, 2:, 2:]
        # A horizon that crosses the image, or comes close to it.
        crossed = ((matrix[:, 2] @ corners.T).min(1) < NEAREST) | ~_convex(corners_of(frame.extent) + moves)
        moves = np.where(crossed[:, None, None], moves / 2, moves)
    return matrix


def _convex(corners: Array) -> NDArray[np.bool_]:
    """Whether quadrilaterals `(B, 4, 2)`, clockwise in the image, are convex."""
    before, after = corners - np.roll(corners, 1, 1), np.roll(corners, -1, 1) - corners
    turns = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
    return np.asarray(turns.min(1) > 0)


def corners_of(extent: tuple[float, float]) -> Array:
    """Corners of the image in coordinates n, from the upper left one clockwise: `(4, 2)`."""
    return np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1]]) * extent


def corners_to_matrix(moves: Array, extent: tuple[float, float]) -> Array:
    """The projective maps that move the image's corners by `(B, 4, 2)`: `(B, 3, 3)`.

    In closed form from the unit square (P. Heckbert, "Fundamentals of texture mapping and image warping", 1989).
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
    """Evaluates motions for all pixels of a frame, on a device."""

    def __init__(self, frame: Frame, device: torch.device) -> None:
        ys, xs = np.meshgrid(np.arange(frame.height), np.arange(frame.width), indexing="ij")
        pixels = np.stack([xs, ys], -1).reshape(-1, 2).astype(np.float64)
        normal = (pixels - frame.centre) / frame.half  # (HW, 2)
        self.frame = frame
        self.normal = torch.from_numpy(normal.T.astype(np.float32)).to(device)  # (2, HW)
        basis = torch.from_numpy(np.ascontiguousarray(basis_at(normal, frame.extent).T.astype(np.float32)))
        self._split = device.type == "cuda"
        if self._split:  # a product of the two parts is as good as one in float32, also where TF32 is allowed
            high, low = split_tf32(basis)
            basis = torch.cat([high, low, high])
        self._basis = basis.to(device)  # (K, HW)

    def __call__(self, matrix: Tensor, coefficients: Tensor | None) -> Tensor:
        """Pixels of the query for all pixels of the reference: `(B, 2, H, W)`.

        Args:
            matrix: `(B, 3, 3)`, see `Warps`.
            coefficients: `(B, 2, COEFFICIENTS)`, or None for no bending.
        """
        x, y = self.normal
        if coefficients is not None:
            flat = coefficients.flatten(0, 1)  # (2B, K)
            if self._split:
                high, low = split_tf32(flat)
                flat = torch.cat([high, high, low], 1)
            bend = (flat @ self._basis).view(len(matrix), 2, -1)
            x, y = x + bend[:, 0], y + bend[:, 1]  # (B, HW)
        else:
            x, y = x.expand(len(matrix), -1), y.expand(len(matrix), -1)
        return project_grid(matrix, x, y).view(len(matrix), 2, self.frame.height, self.frame.width)


def project_grid(matrix: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Points `(B, N)` mapped by `(B, 3, 3)`: `(B, 2, N)`. By element: matrix products may be rounded to TF32."""
    m = matrix[..., None]  # (B, 3, 3, 1)
    depth = torch.addcmul(torch.addcmul(m[:, 2, 2], m[:, 2, 0], x), m[:, 2, 1], y).clamp(min=MIN_DEPTH).reciprocal()
    u = torch.addcmul(torch.addcmul(m[:, 0, 2], m[:, 0, 0], x), m[:, 0, 1], y) * depth
    v = torch.addcmul(torch.addcmul(m[:, 1, 2], m[:, 1, 0], x), m[:, 1, 1], y) * depth
    return torch.stack([u, v], 1)
