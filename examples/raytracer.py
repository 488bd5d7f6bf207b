"""A small ray tracer in NumPy: boxes, balls and columns with photographs on them, a sun with soft shadows, a sky.

`courtyard.py` uses it to render the pair of pictures that ships with gocor, with its exact flow. Lengths are in metres,
x to the right, y down, z away from the camera.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Vector = tuple[float, float, float]

FAR = np.float32(1e6)
EDGE = 1e-3  # pixels: rounding errors at the border of a picture
LIFT = 1e-3  # metres by which secondary rays start above a surface
REACH = 1.5  # metres: surfaces beyond do not darken the sky light
SUN = (-0.55, -0.75, -0.60)  # direction towards the sun; y points down
SUN_RADIUS = 0.05  # radians: softness of shadows
SUN_COLOUR, SKY_COLOUR = (1.55, 1.42, 1.22), (0.42, 0.48, 0.56)
HORIZON = (0.62, 0.72, 0.86)


@dataclass(frozen=True)
class Paint:
    """How a surface looks: a photograph, repeated every `size` metres, or stretched over a face if `size` is 0."""

    photo: str
    size: float = 0.0
    tint: Vector = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Box:
    """A box, turned about the vertical axis by an angle in degrees; `half` holds its half sides."""

    centre: Vector
    half: Vector
    paint: Paint
    angle: float = 0.0

    def _to_local(self, points: Floats, *, shift: bool) -> Floats:
        cos, sin = np.cos(np.radians(self.angle)), np.sin(np.radians(self.angle))
        turn = np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]], np.float32)
        return (points - np.float32(self.centre) if shift else points) @ turn

    def hit(self, origin: Floats, direction: Floats) -> Floats:
        """Distance along each ray `(N, 3)` to the box, `FAR` if it is missed."""
        start, along = self._to_local(origin, shift=True), self._to_local(direction, shift=False)
        along = np.where(np.abs(along) < 1e-7, np.float32(1e-7), along)
        sides = np.stack([(-np.float32(self.half) - start) / along, (np.float32(self.half) - start) / along])
        enter, leave = sides.min(0).max(-1), sides.max(0).min(-1)
        return np.where((enter < leave) & (enter > 0), enter, FAR)

    def surface(self, points: Floats) -> tuple[Floats, Floats]:
        """Normals `(N, 3)` and texture coordinates `(N, 2)` of points on the box."""
        local = self._to_local(points, shift=True)
        share = local / np.float32(self.half)
        axis = np.abs(share).argmax(-1)
        rows = np.arange(len(points))
        normal = np.zeros_like(points)
        normal[rows, axis] = np.sign(share[rows, axis])
        cos, sin = np.cos(np.radians(self.angle)), np.sin(np.radians(self.angle))
        normal = normal @ np.array([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]], np.float32)
        first, second = np.choose(axis, [2, 0, 0]), np.choose(axis, [1, 2, 1])
        values = share / 2 + 0.5 if not self.paint.size else local / self.paint.size
        return normal, np.stack([values[rows, first], values[rows, second]], -1)


@dataclass(frozen=True)
class Ball:
    """A ball."""

    centre: Vector
    radius: float
    paint: Paint

    def hit(self, origin: Floats, direction: Floats) -> Floats:
        """Distance along each ray `(N, 3)` to the ball, `FAR` if it is missed."""
        return _quadratic(origin - np.float32(self.centre), direction, self.radius)

    def surface(self, points: Floats) -> tuple[Floats, Floats]:
        """Normals and texture coordinates (longitude and latitude)."""
        normal = (points - np.float32(self.centre)) / np.float32(self.radius)
        x, y, z = normal.T
        turns = np.stack([np.arctan2(x, -z) / np.pi + 0.5, np.arcsin(np.clip(y, -1, 1)) / np.pi + 0.5], -1)
        return normal, turns.astype(np.float32)


@dataclass(frozen=True)
class Column:
    """A vertical cylinder without ends."""

    centre: tuple[float, float]
    radius: float
    height: float
    paint: Paint

    def hit(self, origin: Floats, direction: Floats) -> Floats:
        """Distance along each ray `(N, 3)` to the outside of the column, `FAR` if it is missed."""
        x, z = self.centre
        flat = np.float32([1, 0, 1])
        length = np.linalg.norm(direction * flat, axis=-1).clip(1e-7)
        found = _quadratic((origin - np.float32([x, 0, z])) * flat, direction * flat / length[:, None], self.radius)
        found = np.where(found < FAR, found / length, FAR)
        y = origin[:, 1] + found * direction[:, 1]
        return np.where((found < FAR) & (y <= 0) & (y >= -self.height), found, FAR)

    def surface(self, points: Floats) -> tuple[Floats, Floats]:
        """Normals and texture coordinates, in metres around and along the column."""
        x, z = self.centre
        normal = (points - np.float32([x, 0, z])) * np.float32([1, 0, 1]) / np.float32(self.radius)
        around = np.arctan2(normal[:, 0], -normal[:, 2]) * self.radius
        return normal, np.stack([around, points[:, 1]], -1) / (self.paint.size or 1)


Solid = Box | Ball | Column


@dataclass(frozen=True)
class Camera:
    """A pinhole camera at `position` that looks at `target`, with the exposure of its picture."""

    position: Vector
    target: Vector
    size: tuple[int, int] = (480, 640)  # height, width
    view: float = 62.0  # horizontal field of view in degrees
    exposure: Vector = (1.0, 1.0, 1.0)
    roll: float = 0.0  # degrees
    axes: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        forward = np.float32(self.target) - np.float32(self.position)
        forward /= np.linalg.norm(forward)
        right = np.cross([0, 1, 0], forward)
        right /= np.linalg.norm(right)
        down = np.cross(forward, right)
        cos, sin = np.cos(np.radians(self.roll)), np.sin(np.radians(self.roll))
        axes = np.stack([cos * right + sin * down, cos * down - sin * right, forward]).astype(np.float32)
        object.__setattr__(self, "axes", axes)

    @property
    def focal(self) -> float:
        """Focal length in pixels."""
        return float(self.size[1] / 2 / np.tan(np.radians(self.view / 2)))

    def rays(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Origins and directions `(N, 3)` of the rays through pixels; centres of pixels are at integers."""
        height, width = self.size
        local = np.stack([x - (width - 1) / 2, y - (height - 1) / 2, np.full_like(x, self.focal)], -1)
        direction = (local / np.linalg.norm(local, axis=-1, keepdims=True)).astype(np.float32) @ self.axes
        return np.broadcast_to(np.float32(self.position), direction.shape), direction

    def project(self, points: Floats) -> Floats:
        """Pixels `(N, 2)` that show points `(N, 3)`."""
        local = (points - np.float32(self.position)) @ self.axes.T
        height, width = self.size
        return self.focal * local[:, :2] / local[:, 2:] + np.float32([(width - 1) / 2, (height - 1) / 2])


def trace(scene: Sequence[Solid], origin: Floats, direction: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Distance `(N,)` to the nearest solid along each ray, and its index."""
    distances = np.stack([solid.hit(origin, direction) for solid in scene])
    nearest = distances.argmin(0)
    return distances[nearest, np.arange(len(nearest))], nearest


def true_flow(scene: Sequence[Solid], reference: Camera, query: Camera) -> tuple[Floats, NDArray[np.bool_]]:
    """Flow `(H, W, 2)` from the reference to the query, and which pixels `(H, W)` both of them show."""
    height, width = reference.size
    y, x = np.mgrid[:height, :width].astype(np.float32).reshape(2, -1)
    origin, direction = reference.rays(x, y)
    distance, _ = trace(scene, origin, direction)
    points = origin + distance[:, None] * direction
    target = query.project(points)
    away = points - np.float32(query.position)
    length = np.linalg.norm(away, axis=-1)
    first, _ = trace(scene, np.broadcast_to(np.float32(query.position), away.shape), away / length[:, None])
    bounds = np.float32([query.size[1] - 1, query.size[0] - 1])
    seen = (distance < FAR) & (first > length - 0.01) & ((target >= -EDGE) & (target <= bounds + EDGE)).all(-1)
    flow = (target - np.stack([x, y], -1)).reshape(height, width, 2)
    return flow.astype(np.float32), seen.reshape(height, width)


def render(
    scene: Sequence[Solid], camera: Camera, photos: Mapping[str, Floats], *, samples: int = 4, seed: int = 0
) -> NDArray[np.uint8]:
    """A picture `(H, W, 3)` of the scene, with `samples`² rays a pixel."""
    generator = np.random.default_rng(seed)
    height, width = camera.size
    y, x = np.mgrid[:height, :width].astype(np.float32).reshape(2, -1)
    light = np.zeros((height * width, 3), np.float32)
    for step in range(samples**2):
        cell = np.float32([step % samples, step // samples]) + generator.random((len(x), 2), np.float32)
        offset = cell / samples - 0.5
        light += _shade(scene, *camera.rays(x + offset[:, 0], y + offset[:, 1]), photos, generator)
    light = light / samples**2 * np.float32(camera.exposure)
    light += generator.normal(0, 0.004, light.shape).astype(np.float32)  # noise of the sensor
    shown = np.clip(light, 0, None) / (1 + 0.25 * np.clip(light, 0, None))  # bright regions saturate softly
    return (255 * np.clip(shown, 0, 1) ** (1 / 2.2)).round().astype(np.uint8).reshape(height, width, 3)


def _shade(
    scene: Sequence[Solid],
    origin: Floats,
    direction: Floats,
    photos: Mapping[str, Floats],
    generator: np.random.Generator,
) -> Floats:
    """Light `(N, 3)` that comes back along rays."""
    distance, nearest = trace(scene, origin, direction)
    points = origin + distance[:, None] * direction
    colour, normal = np.zeros_like(points), np.zeros_like(points)
    for index, solid in enumerate(scene):
        rows = np.flatnonzero((nearest == index) & (distance < FAR))
        if len(rows):
            normal[rows], where = solid.surface(points[rows])
            colour[rows] = _sample(photos[solid.paint.photo], where) * np.float32(solid.paint.tint)
    start = points + LIFT * normal
    ball = generator.normal(size=points.shape).astype(np.float32)
    ball /= np.linalg.norm(ball, axis=-1, keepdims=True)
    sun = np.float32(SUN) / np.linalg.norm(SUN) + SUN_RADIUS * ball
    sun /= np.linalg.norm(sun, axis=-1, keepdims=True)
    lit = (trace(scene, start, sun)[0] >= FAR) * (normal * sun).sum(-1).clip(0)
    up = normal + ball  # distributed by the cosine of the angle to the normal
    up /= np.linalg.norm(up, axis=-1, keepdims=True).clip(1e-6)
    sky = (trace(scene, start, up)[0] / REACH).clip(0.15, 1)
    light = colour * (lit[:, None] * np.float32(SUN_COLOUR) + sky[:, None] * np.float32(SKY_COLOUR))
    return np.where((distance < FAR)[:, None], light, np.float32(HORIZON))


def _sample(photo: Floats, where: Floats) -> Floats:
    """Colours of a photograph at texture coordinates, which repeat after 1, between its pixels."""
    height, width = photo.shape[:2]
    x, y = np.mod(where[:, 0], 1) * width - 0.5, np.mod(where[:, 1], 1) * height - 0.5
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    right_share, low_share = (x - left)[:, None], (y - top)[:, None]
    rows, columns = np.stack([top, top + 1]) % height, np.stack([left, left + 1]) % width
    upper = photo[rows[0], columns[0]] * (1 - right_share) + photo[rows[0], columns[1]] * right_share
    lower = photo[rows[1], columns[0]] * (1 - right_share) + photo[rows[1], columns[1]] * right_share
    return (upper * (1 - low_share) + lower * low_share).astype(np.float32)


def _quadratic(offset: Floats, direction: Floats, radius: float) -> Floats:
    """Distance along rays with unit directions to a ball around the origin, `FAR` if it is missed."""
    middle = (offset * direction).sum(-1)
    root = middle**2 - (offset**2).sum(-1) + radius**2
    found = -middle - np.sqrt(root.clip(0))
    return np.where((root > 0) & (found > 0), found, FAR).astype(np.float32)
