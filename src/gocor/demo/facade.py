"""Two rendered views of a façade whose windows look alike, with exact correspondences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..utils.arrays import Picture

Floats = NDArray[np.floating]

HEIGHT, WIDTH, _ = SHAPE = (384, 480, 3)  # shape of both views
SEED = 40  # gives a clear picture; with seeds 0 to 79, GOCor's peak is at the true match after three iterations

# The façade consists of TILES (columns, rows) with a window each. Lengths are in pixels of the reference view; the
# façade is painted at OVERSAMPLING times that resolution.
TILE, TILES, OVERSAMPLING = (60, 72), (12, 9), 3
ORIGIN = (120, 136)  # upper left corner of the reference view on the façade
PANE = (15, 12, 45, 56)  # left, top, right and bottom of the glass in a tile
WINDOW_CENTRE = (29.5, 33.5)  # centre of the window in a tile
WALL, JOINT, SHADE, STONE = (0.74, 0.62, 0.50), (0.69, 0.57, 0.46), (0.60, 0.50, 0.42), (0.88, 0.85, 0.80)
GLASS, LIT, LAMP, SKY = (0.23, 0.28, 0.34), (0.50, 0.43, 0.28), (0.95, 0.88, 0.60), (0.55, 0.62, 0.70)
BLIND, SLAT, LEAF = (0.78, 0.74, 0.62), (0.65, 0.61, 0.50), (0.18, 0.50, 0.18)
TRANSPARENCY = 0.5  # transparency of the glass

# Corners of the reference view and their positions in the query view, clockwise from the upper left.
CORNERS = ((0, 0), (WIDTH - 1, 0), (WIDTH - 1, HEIGHT - 1), (0, HEIGHT - 1))
QUERY_CORNERS = ((-24, -16), (WIDTH - 8, -20), (WIDTH + 4, HEIGHT + 2), (-20, HEIGHT - 2))


@dataclass(frozen=True)
class Views:
    """Two views of the façade, RGB `(H, W, 3)`. Coordinates are `(x, y)`; pixel centres are at integers."""

    reference: Picture
    query: Picture
    homography: Floats  # (3, 3), from pixels of the reference to pixels of the query
    windows: Floats  # (N, 2), centres of the windows in the reference


def render_views(seed: int = SEED) -> Views:
    """Render a frontal reference view, and a query view from another place under another illumination; add noise."""
    import cv2

    rng = np.random.default_rng(seed)
    facade = paint_facade(rng)
    homography = np.asarray(cv2.getPerspectiveTransform(*np.array([CORNERS, QUERY_CORNERS], np.float32)), np.float64)
    scale = 1 / OVERSAMPLING
    shift = [scale / 2 - 0.5 - origin for origin in ORIGIN]  # between the pixel centres of both resolutions
    to_reference = np.array([[scale, 0, shift[0]], [0, scale, shift[1]], [0, 0, 1]])
    light = (0.80 + grid(WIDTH, HEIGHT) @ (0.25 / WIDTH, -0.10 / HEIGHT))[..., None] * (1.04, 1.0, 0.93)

    def render(matrix: Floats, gain: Floats, noise: float) -> Picture:
        view = gain * cv2.warpPerspective(facade, matrix, (WIDTH, HEIGHT)) + noise * rng.standard_normal(SHAPE)
        return (255 * view.clip(0, 1)).round().astype(np.uint8)

    reference, query = render(to_reference, np.ones(3), 0.015), render(homography @ to_reference, light, 0.02)
    windows = grid(*TILES).reshape(-1, 2) * TILE + WINDOW_CENTRE - ORIGIN
    return Views(reference, query, homography, windows[((windows >= 0) & (windows < (WIDTH, HEIGHT))).all(1)])


def grid(width: int, height: int) -> Floats:
    """Coordinates `(x, y)` of all pixels, `(height, width, 2)`."""
    return np.stack(np.meshgrid(np.arange(float(width)), np.arange(float(height))), -1)


def paint_facade(rng: np.random.Generator) -> Floats:
    """Paint all tiles and stains on the wall, RGB in [0, 1], blurred to the resolution of the views."""
    import cv2

    facade = np.concatenate([np.concatenate([paint_tile(rng) for _ in range(TILES[0])], 1) for _ in range(TILES[1])])
    stains = cv2.GaussianBlur(rng.standard_normal([n // 4 for n in facade.shape[:2]]), (0, 0), 2)
    facade += 0.06 * cv2.resize(stains, facade.shape[1::-1], interpolation=cv2.INTER_CUBIC)[..., None]
    return np.asarray(cv2.GaussianBlur(facade, (0, 0), OVERSAMPLING / 2))


def paint_tile(rng: np.random.Generator) -> Floats:
    """Paint one window and the wall around it, RGB in [0, 1]."""
    tile = np.full((TILE[1] * OVERSAMPLING, TILE[0] * OVERSAMPLING, 3), WALL, np.float32)
    for y in range(0, TILE[1], 8):
        fill(tile, 0, y, 60, y + 1, JOINT)
    fill(tile, 0, 64, 60, 67, SHADE)  # cornice
    fill(tile, 9, 59, 51, 65, SHADE)  # shadow of the sill
    fill(tile, 9, 59, 51, 63, STONE)  # sill
    fill(tile, 11, 8, 49, 60, STONE)  # frame
    left, top, right, bottom = (OVERSAMPLING * side for side in PANE)
    pane = tile[top:bottom, left:right]
    pane[:] = glass = np.array(GLASS) * rng.uniform(0.75, 1.25)
    furnish(pane, rng)
    pane[:] = TRANSPARENCY * pane + (1 - TRANSPARENCY) * glass
    fill(tile, 29, 12, 31, 56, STONE)  # vertical bar
    fill(tile, 15, 27, 45, 29, STONE)  # horizontal bar
    return tile


def furnish(pane: Floats, rng: np.random.Generator) -> None:
    """Paint a random choice of lamp, reflection, curtains, blind and plant behind a glass of 30×44 pixels."""
    import cv2

    def disc(x: float, y: float, radius: float, colour: Sequence[float]) -> None:
        cv2.circle(pane, (round(OVERSAMPLING * x), round(OVERSAMPLING * y)), round(OVERSAMPLING * radius), colour, -1)

    lamp, reflection, left, right, blind, plant = rng.random(6) < (0.25, 0.4, 0.5, 0.5, 0.5, 0.5)
    if lamp:
        fill(pane, 0, 0, 30, 44, rng.uniform(0.7, 1.2) * np.array(LIT))
        disc(rng.uniform(4, 26), rng.uniform(6, 38), 4, LAMP)
    if reflection:
        x, width = rng.uniform(0, 14), rng.uniform(4, 9)
        corners = OVERSAMPLING * np.array([(x, 44), (x + width, 44), (x + width + 7, 0), (x + 7, 0)])
        cv2.fillConvexPoly(pane, corners.round().astype(np.int32), SKY)
    fabric = rng.uniform((0.35, 0.30, 0.30), (0.80, 0.75, 0.75))
    if left:
        fill(pane, 0, 0, rng.uniform(4, 13), 44, fabric)
    if right:
        fill(pane, 30 - rng.uniform(4, 13), 0, 30, 44, fabric)
    if blind:
        end = rng.uniform(4, 28)
        fill(pane, 0, 0, 30, end, BLIND)
        for y in np.arange(0, end, 4):
            fill(pane, 0, y, 30, y + 1, SLAT)
    if plant:
        x, size = rng.uniform(6, 24), rng.uniform(4, 9)
        for dx, dy in 0.45 * size * rng.standard_normal((14, 2)):
            disc(x + dx, 44 - size + dy, 0.35 * size, LEAF)


def fill(tile: Floats, left: float, top: float, right: float, bottom: float, colour: Sequence[float] | Floats) -> None:
    """Fill a rectangle whose sides are given in pixels of the reference view."""
    x0, y0, x1, y1 = (round(OVERSAMPLING * side) for side in (left, top, right, bottom))
    tile[y0:y1, x0:x1] = colour
