"""Moving objects: where they stand in both images, drawn on the CPU as matrices."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...ops.homography import project
from .basis import basis_at
from .motion import MIN_DEPTH, Array, Frame, Warps, adjugate, rotation_matrix
from .objects import ObjectStore
from .settings import Objects

NODES = 33  # along a side, at which the background's bending is looked up
STEP = 0.02  # in coordinates n, to measure the background's motion around an object
STEPS = np.array([[0, 0], [STEP, 0], [0, STEP]])


def draw_objects(
    preset: Objects, store: ObjectStore, warps: Warps, frame: Frame, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Objects of all pairs, K for each, from the farthest to the nearest.

    Returns:
        `object` `(B, K)` indices into the store; `to_object` `(B, K, 2, 3, 3)`, from pixels of the reference and of the
        query to pixels of the stored object; `object_motion` `(B, K, 3, 3)`, from pixels of the reference to pixels of
        the query; `object_level` `(B, K, 2)`, how often the stored object is halved for either image. Absent objects
        are seen at their transparent corner only.
    """
    count, slots = len(warps.kind), preset.count[1]
    shape = (count, slots)
    chosen = rng.integers(len(store), size=shape)
    present = rng.random(count) < preset.share
    present = np.arange(slots) < (rng.integers(preset.count[0], slots, count, endpoint=True) * present)[:, None]

    scale = _draw_scales(preset, store, chosen, frame, rng)
    box = np.array([frame.width - 1, frame.height - 1])
    centre = rng.random((*shape, 2)) * box
    placed = scale[..., None, None] * rotation_matrix(np.deg2rad(preset.spin) * rng.uniform(-1, 1, shape))
    placed[..., 0] *= np.where(rng.random(shape) < preset.flip, -1.0, 1.0)[..., None]

    ground, ground_linear = _ground(warps, centre, frame) if preset.relative else (centre, np.eye(2))
    goal = ground + _draw_shifts(preset, shape, rng) * frame.half
    jumps = rng.random(shape) >= preset.near
    goal = np.where(jumps[..., None], rng.random((*shape, 2)) * box, goal)
    linear = ground_linear @ _draw_linear(preset, shape, rng)
    half_side = scale * store.sizes[chosen].max(-1) / 2
    depth = preset.perspective * rng.uniform(-1, 1, (*shape, 2)) / half_side[..., None]
    motion = _about(centre, linear, goal, depth)

    in_object = store.centres[chosen]
    to_reference = _about(in_object, placed, centre, np.zeros((*shape, 2)))
    to_both = np.stack([to_reference, motion @ to_reference], 2)  # (B, K, 2, 3, 3)
    to_object = adjugate(to_both)  # the inverse, but for a factor, which comes now: depth 1 in the object's middle
    middles = np.concatenate([np.stack([centre, goal], 2), np.ones((*shape, 2, 1))], -1)
    to_object /= np.einsum("bkij,bkij->bki", to_object[..., 2, :], middles)[..., None, None]
    to_object[~present] = np.diag([0, 0, 1])
    shrinking = np.stack([1 / np.abs(_det(placed)), 1 / np.abs(_det(linear) * _det(placed))], -1)
    return {
        "object": chosen.astype(np.float64),
        "to_object": to_object,
        "object_motion": motion,
        "object_level": (shrinking[..., None] > np.array([2, 8, 32])).sum(-1).astype(np.float64),
    }


def _draw_scales(
    preset: Objects, store: ObjectStore, chosen: NDArray[np.int64], frame: Frame, rng: np.random.Generator
) -> Array:
    """Image pixels per pixel of the stored object: `(B, K)`."""
    side = min(frame.height, frame.width)
    unit = rng.random(chosen.shape)
    if preset.size is not None:
        low, high = np.log(preset.size)
        return np.exp(low + unit * (high - low)) * side / store.sizes[chosen].max(-1)
    scale = side / preset.native_side / store.factors[chosen]
    covered = store.areas[chosen] * scale**2 / (frame.height * frame.width)
    low, high = preset.large_to
    shrunk = np.sqrt((low + unit * (high - low)) / covered)
    return np.where(covered > preset.large, scale * shrunk, scale)


def _draw_shifts(preset: Objects, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    low, high = preset.shift
    if low <= 0:
        return rng.uniform(-high, high, (*shape, 2))
    length, angle = np.exp(rng.uniform(np.log(low), np.log(high), shape)), rng.uniform(0, 2 * np.pi, shape)
    return np.stack([length * np.cos(angle), length * np.sin(angle)], -1)


def _draw_linear(preset: Objects, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Rotation, zoom, stretch and shear of the objects' motion: `(B, K, 2, 2)`."""
    angle, zoom, stretch, shear = rng.uniform(-1, 1, (4, *shape))
    linear = np.zeros((*shape, 2, 2))
    linear[..., 0, 0], linear[..., 1, 1] = 1 + preset.stretch * stretch / 2, 1 - preset.stretch * stretch / 2
    linear[..., 0, 1] = preset.shear * shear
    turned = rotation_matrix(np.deg2rad(preset.rotation) * angle) @ linear
    return np.exp(preset.zoom * zoom)[..., None, None] * turned


def _ground(warps: Warps, centre: Array, frame: Frame) -> tuple[Array, Array]:
    """Where the background under pixels `(B, K, 2)` goes, and how it turns and stretches there, `(B, K, 2, 2)`.

    To the accuracy that bending is the same all over a cell of a `NODES`×`NODES` grid.
    """
    normal = (centre - frame.centre) / frame.half
    cell = np.rint((normal / frame.extent + 1) * ((NODES - 1) / 2)).astype(np.int64).clip(0, NODES - 1)
    basis = _basis_at_nodes(frame)[cell[..., 1], cell[..., 0]]  # (B, K, 3, COEFFICIENTS)
    bend = basis.reshape(len(basis), -1, basis.shape[-1]) @ warps.coefficients.swapaxes(1, 2)
    around = normal[:, :, None] + STEPS + bend.reshape(*normal.shape[:2], 3, 2)
    moved = project(warps.matrix, around.reshape(len(around), -1, 2), MIN_DEPTH).reshape(around.shape)
    linear = np.stack([moved[:, :, 1] - moved[:, :, 0], moved[:, :, 2] - moved[:, :, 0]], -1) / (STEP * frame.half)
    determinant, largest = _det(linear), np.abs(linear).max((-1, -2))
    usual = (determinant > 0.15) & (determinant < 6) & (largest < 4)
    return moved[:, :, 0], np.where(usual[..., None, None], linear, np.eye(2))


@lru_cache(maxsize=8)
def _basis_at_nodes(frame: Frame) -> Array:
    """The bending's functions at the nodes, a step to their right and a step below: `(NODES, NODES, 3, K)`."""
    ys, xs = np.meshgrid(np.linspace(-1, 1, NODES), np.linspace(-1, 1, NODES), indexing="ij")
    return basis_at((np.stack([xs, ys], -1) * frame.extent)[..., None, :] + STEPS, frame.extent)


def _about(start: Array, linear: Array, goal: Array, depth: Array) -> Array:
    """Projective maps `(B, K, 3, 3)` that take `start` to `goal`, with the linear part and change of depth there."""
    back = np.zeros((*start.shape[:-1], 3, 3))
    back[..., 0, 0] = back[..., 1, 1] = back[..., 2, 2] = 1
    there = back.copy()
    back[..., :2, 2], there[..., :2, 2] = -start, goal
    middle = np.zeros_like(back)
    middle[..., :2, :2], middle[..., 2, :2], middle[..., 2, 2] = linear, depth, 1
    return there @ middle @ back


def _det(matrix: Array) -> Array:
    return matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]
