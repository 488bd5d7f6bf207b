"""Moving objects: their positions in both images, drawn on the CPU as matrices."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...ops.homography import project
from ...utils.arrays import Array
from .basis import basis_at
from .motion import MIN_DEPTH, Frame, Warps, adjugate, rotation_matrix
from .objects import ObjectStore
from .settings import Objects, Range

NODES = 33  # The non-rigid background motion is tabulated on a grid of NODES×NODES points.
STEP = 0.02  # in coordinates n, for finite differences of the background motion
STEPS = np.array([[0, 0], [STEP, 0], [0, STEP]])
THIN = (0.12, 0.35)  # widths of thin objects, relative to the cut-out's
STANDING = 0.75  # share of the objects that stand still where the camera moves
DEPTH_CHANGE = (0.6, 1.6)  # bounds of the change of an object's depth by the camera's move
LEVEL_AREAS = np.array([2, 8, 32])  # stored pixels per image pixel above which an object is halved once, twice, …


def draw_objects(
    preset: Objects, store: ObjectStore, warps: Warps, frame: Frame, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Draw K objects for each pair, from the farthest to the nearest.

    Returns:
        `object` `(B, K)`: indices into the store. `to_object` `(B, K, 2, 3, 3)`: homographies from pixels of the
        reference and of the query to pixels of the stored object. `object_motion` `(B, K, 3, 3)`: homographies from
        pixels of the reference to pixels of the query. `object_level` `(B, K, 2)`: pyramid level of the object for the
        reference and for the query. If a pair has fewer than K objects, the others map to a transparent pixel.
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

    start, start_linear = _background_motion(warps, centre, frame) if preset.relative else (centre, np.eye(2))
    shift, own_linear = _draw_shifts(preset, shape, rng), _draw_linear(preset, shape, rng)
    jumps = rng.random(shape) >= preset.near
    if preset.thin:
        placed[..., 0] *= _draw_widths(preset, shape, rng)[..., None]
    if preset.parallax:
        standing, moved, zoom = _draw_parallax(preset, (centre - frame.centre) / frame.half, rng)
        shift = np.where(standing[..., None], moved, shift)
        own_linear = np.where(standing[..., None, None], zoom[..., None, None] * np.eye(2), own_linear)
        jumps &= ~standing
    query_centre = start + shift * frame.half
    query_centre = np.where(jumps[..., None], rng.random((*shape, 2)) * box, query_centre)
    linear = start_linear @ own_linear
    half_side = scale * store.sizes[chosen].max(-1) / 2
    depth = preset.perspective * rng.uniform(-1, 1, (*shape, 2)) / half_side[..., None]
    motion = _homography_about(centre, linear, query_centre, depth)

    to_reference = _homography_about(store.centres[chosen], placed, centre, np.zeros((*shape, 2)))
    from_object = np.stack([to_reference, motion @ to_reference], 2)  # (B, K, 2, 3, 3)
    to_object = adjugate(from_object)
    # The adjugate is the inverse up to a factor; it is scaled so that the depth is 1 at the object's centre.
    centres = np.concatenate([np.stack([centre, query_centre], 2), np.ones((*shape, 2, 1))], -1)
    to_object /= np.einsum("bkij,bkij->bki", to_object[..., 2, :], centres)[..., None, None]
    to_object[~present] = np.diag([0, 0, 1])
    stored_area = np.stack([1 / np.abs(_det(placed)), 1 / np.abs(_det(linear) * _det(placed))], -1)
    return {
        "object": chosen.astype(np.float64),
        "to_object": to_object,
        "object_motion": motion,
        "object_level": (stored_area[..., None] > LEVEL_AREAS).sum(-1).astype(np.float64),
    }


def _draw_scales(
    preset: Objects, store: ObjectStore, chosen: NDArray[np.int64], frame: Frame, rng: np.random.Generator
) -> Array:
    """Draw the scales of the objects `(B, K)`: image pixels per pixel of the stored object."""
    side = min(frame.height, frame.width)
    unit = rng.random(chosen.shape)
    if preset.size is not None:
        low, high = np.log(preset.size)
        return np.exp(low + unit * (high - low)) * side / store.sizes[chosen].max(-1)
    scale = side / preset.native_side / store.factors[chosen]
    area = store.areas[chosen] * scale**2 / (frame.height * frame.width)  # share of the image
    low, high = preset.large_to
    shrink = np.sqrt((low + unit * (high - low)) / area)
    return np.where(area > preset.large, scale * shrink, scale)


def _draw_shifts(preset: Objects, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw the shifts of the objects, `(B, K, 2)` in coordinates n."""
    low, high = preset.shift
    if low <= 0:
        return rng.uniform(-high, high, (*shape, 2))
    length, angle = _log_uniform(preset.shift, shape, rng), rng.uniform(0, 2 * np.pi, shape)
    return np.stack([length * np.cos(angle), length * np.sin(angle)], -1)


def _log_uniform(bounds: Range, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    low, high = np.log(bounds)
    return np.asarray(np.exp(rng.uniform(low, high, shape)))


def _draw_linear(preset: Objects, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw the linear parts of the objects' motions, `(B, K, 2, 2)`: rotation, zoom, stretch and shear."""
    angle, zoom, stretch, shear = rng.uniform(-1, 1, (4, *shape))
    linear = np.zeros((*shape, 2, 2))
    linear[..., 0, 0], linear[..., 1, 1] = 1 + preset.stretch * stretch / 2, 1 - preset.stretch * stretch / 2
    linear[..., 0, 1] = preset.shear * shear
    turned = rotation_matrix(np.deg2rad(preset.rotation) * angle) @ linear
    return np.exp(preset.zoom * zoom)[..., None, None] * turned


def _draw_widths(preset: Objects, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw factors of the objects' widths, `(B, K)`: 1, or less for thin ones."""
    return np.where(rng.random(shape) < preset.thin, _log_uniform(THIN, shape, rng), 1.0)


def _draw_parallax(preset: Objects, centre: Array, rng: np.random.Generator) -> tuple[NDArray[np.bool_], Array, Array]:
    """Draw the camera's moves, and the motions of objects that stand still, relative to the background's.

    Args:
        preset: ranges to draw from.
        centre: centres of the objects in the reference, `(B, K, 2)` in coordinates n.
        rng: random numbers.

    Returns:
        Which objects stand still `(B, K)`, their shifts `(B, K, 2)` in coordinates n, and their zooms `(B, K)`. An
        object at a depth of 1/ρ of the background's moves ρ times as far as that, so ρ - 1 times relative to it.
    """
    count, slots = centre.shape[:2]
    standing = (rng.random((count, 1)) < preset.parallax) & (rng.random((count, slots)) < STANDING)
    nearer = np.sort(_log_uniform(preset.nearness, (count, slots), rng), 1) - 1  # farthest first
    direction = rng.standard_normal((count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    travel = _log_uniform(preset.travel, (count, 1), rng) * direction
    zoom = 1 / (1 - nearer * travel[:, 2:]).clip(*DEPTH_CHANGE)
    return standing, nearer[..., None] * travel[:, None, :2] * zoom[..., None] + (zoom - 1)[..., None] * centre, zoom


def _background_motion(warps: Warps, centre: Array, frame: Frame) -> tuple[Array, Array]:
    """Targets of the background's pixels `(B, K, 2)` and the Jacobians of its motion there, `(B, K, 2, 2)`.

    The non-rigid part is taken from the nearest node of the table. Extreme Jacobians are replaced by the identity.
    """
    normalised = (centre - frame.centre) / frame.half
    cell = np.rint((normalised / frame.extent + 1) * ((NODES - 1) / 2)).astype(np.int64).clip(0, NODES - 1)
    basis = _basis_at_nodes(frame)[cell[..., 1], cell[..., 0]]  # (B, K, 3, COEFFICIENTS)
    offset = basis.reshape(len(basis), -1, basis.shape[-1]) @ warps.coefficients.swapaxes(1, 2)
    points = normalised[:, :, None] + STEPS + offset.reshape(*normalised.shape[:2], 3, 2)
    targets = project(warps.matrix, points.reshape(len(points), -1, 2), MIN_DEPTH).reshape(points.shape)
    differences = np.stack([targets[:, :, 1] - targets[:, :, 0], targets[:, :, 2] - targets[:, :, 0]], -1)
    jacobian = differences / (STEP * frame.half)
    determinant, largest = _det(jacobian), np.abs(jacobian).max((-1, -2))
    moderate = (determinant > 0.15) & (determinant < 6) & (largest < 4)
    return targets[:, :, 0], np.where(moderate[..., None, None], jacobian, np.eye(2))


@lru_cache(maxsize=8)
def _basis_at_nodes(frame: Frame) -> Array:
    """Basis functions at the nodes, one step right of them and one step below: `(NODES, NODES, 3, COEFFICIENTS)`."""
    ys, xs = np.meshgrid(np.linspace(-1, 1, NODES), np.linspace(-1, 1, NODES), indexing="ij")
    return basis_at((np.stack([xs, ys], -1) * frame.extent)[..., None, :] + STEPS, frame.extent)


def _homography_about(start: Array, linear: Array, target: Array, depth: Array) -> Array:
    """Homographies `(B, K, 3, 3)` that map `start` to `target`, with this linear part and gradient of depth there."""
    to_origin = np.zeros((*start.shape[:-1], 3, 3))
    to_origin[..., 0, 0] = to_origin[..., 1, 1] = to_origin[..., 2, 2] = 1
    from_origin = to_origin.copy()
    to_origin[..., :2, 2], from_origin[..., :2, 2] = -start, target
    at_origin = np.zeros_like(to_origin)
    at_origin[..., :2, :2], at_origin[..., 2, :2], at_origin[..., 2, 2] = linear, depth, 1
    return from_origin @ at_origin @ to_origin


def _det(matrix: Array) -> Array:
    return matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]
