"""A demonstration on a picture full of look-alikes: what plain correlation sees, and what GOCor makes of it.

Everything is made here, the picture of a façade included, so the true correspondences are known exactly. No trained
network takes part: descriptors are written by hand, and the GOCor module has the parameters that its training starts
from. Its query term is left out, because that term's operator R starts from random numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..modules import GlobalGOCor
from ..ops.correlation import global_correlation

Floats = NDArray[np.floating]
Picture = NDArray[np.uint8]

HEIGHT, WIDTH, _ = SHAPE = (384, 480, 3)  # of both pictures
CELL = 12  # pixels per feature cell, each way
SEED = 40  # chosen for a clear picture; seeds 0 to 79 all put the peak at the right place after three iterations

# The façade: tiles of TILE pixels (x, y) of the reference view with a window each, painted OVERSAMPLING times finer.
TILE, TILES, OVERSAMPLING = (60, 72), (12, 9), 3
ORIGIN = (120, 136)  # where the reference view begins on the façade
PANE = (15, 12, 45, 56)  # left, top, right and bottom of the glass in a tile
WALL, JOINT, SHADE, STONE = (0.74, 0.62, 0.50), (0.69, 0.57, 0.46), (0.60, 0.50, 0.42), (0.88, 0.85, 0.80)
GLASS, LIT, LAMP, SKY = (0.23, 0.28, 0.34), (0.50, 0.43, 0.28), (0.95, 0.88, 0.60), (0.55, 0.62, 0.70)
BLIND, SLAT, LEAF = (0.78, 0.74, 0.62), (0.65, 0.61, 0.50), (0.18, 0.50, 0.18)
DIM = 0.5  # how much is seen of what stands behind the glass

# The query view: where the reference picture's corners go, clockwise from the top left.
CORNERS = ((0, 0), (WIDTH - 1, 0), (WIDTH - 1, HEIGHT - 1), (0, HEIGHT - 1))
QUERY_CORNERS = ((-24, -16), (WIDTH - 8, -20), (WIDTH + 4, HEIGHT + 2), (-20, HEIGHT - 2))

# Descriptors: rings of sample points around a pixel as (radius, points, blur), lengths in pixels.
RINGS = ((0, 1, 7), (22, 6, 9), (44, 8, 11), (66, 10, 14), (88, 12, 17))
ORIENTATIONS, COLOUR_GAIN = 4, 8.0

ITERS = 7
HIT = 1.5  # cells: an argmax this close to the truth is right
PEAK = 2.5  # cells, half the way to the next window: scores farther away belong to something else


@dataclass(frozen=True)
class Views:
    """Two views of the façade, RGB pictures `(H, W, 3)`. Coordinates are `(x, y)`, counted at pixel centres."""

    reference: Picture
    query: Picture
    homography: Floats  # (3, 3), from pixels of the reference to pixels of the query
    windows: Floats  # (N, 2), centres of the windows in the reference


@dataclass(frozen=True)
class Measure:
    """How well a volume finds the truth: for the shown pixel, and for all whose true match the query shows."""

    name: str
    error: float  # pixels between the shown pixel's highest score and its true match
    ratio: float  # the shown pixel's highest score elsewhere, relative to the highest at its true match
    median_ratio: float  # the same over all pixels
    hits: float  # share of all pixels whose highest score is at the true match


@dataclass(frozen=True)
class Study:
    """One reference pixel and its true match, `(x, y)`; by volume its scores `(H/CELL, W/CELL)`, and measures."""

    views: Views
    pixel: Floats
    truth: Floats
    reference_scores: tuple[Floats, ...]
    query_scores: tuple[Floats, ...]
    measures: tuple[Measure, ...]


def fill(tile: Floats, left: float, top: float, right: float, bottom: float, colour: Sequence[float] | Floats) -> None:
    """Fill a rectangle, its sides in pixels of the reference view."""
    x0, y0, x1, y1 = (round(OVERSAMPLING * side) for side in (left, top, right, bottom))
    tile[y0:y1, x0:x1] = colour


def furnish(pane: Floats, rng: np.random.Generator) -> None:
    """What tells one window (glass of 30×44 pixels) from another: some of lamp, reflection, curtains, blind, plant."""
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


def paint_tile(rng: np.random.Generator) -> Floats:
    """One window and the wall around it, RGB in [0, 1]."""
    tile = np.full((TILE[1] * OVERSAMPLING, TILE[0] * OVERSAMPLING, 3), WALL, np.float32)
    for y in range(0, TILE[1], 8):
        fill(tile, 0, y, 60, y + 1, JOINT)
    fill(tile, 0, 64, 60, 67, SHADE)  # cornice
    fill(tile, 9, 59, 51, 65, SHADE)  # shadow of the sill
    fill(tile, 9, 59, 51, 63, STONE)
    fill(tile, 11, 8, 49, 60, STONE)
    left, top, right, bottom = (OVERSAMPLING * side for side in PANE)
    pane = tile[top:bottom, left:right]
    pane[:] = glass = np.array(GLASS) * rng.uniform(0.75, 1.25)
    furnish(pane, rng)
    pane[:] = DIM * pane + (1 - DIM) * glass
    fill(tile, 29, 12, 31, 56, STONE)
    fill(tile, 15, 27, 45, 29, STONE)
    return tile


def render_views(seed: int = SEED) -> Views:
    """A frontal reference view of the façade, and a query view from elsewhere, in other light; both with noise."""
    import cv2

    rng = np.random.default_rng(seed)
    facade = np.concatenate([np.concatenate([paint_tile(rng) for _ in range(TILES[0])], 1) for _ in range(TILES[1])])
    stains = cv2.GaussianBlur(rng.standard_normal([n // 4 for n in facade.shape[:2]]), (0, 0), 2)
    facade += 0.06 * cv2.resize(stains, facade.shape[1::-1], interpolation=cv2.INTER_CUBIC)[..., None]
    source = cv2.GaussianBlur(facade, (0, 0), OVERSAMPLING / 2)  # no finer than a pixel of the views

    homography = np.asarray(cv2.getPerspectiveTransform(*np.array([CORNERS, QUERY_CORNERS], np.float32)), np.float64)
    scale = 1 / OVERSAMPLING
    shift = [scale / 2 - 0.5 - origin for origin in ORIGIN]  # from pixel centres of the façade to the reference's
    to_reference = np.array([[scale, 0, shift[0]], [0, scale, shift[1]], [0, 0, 1]])
    light = (0.80 + grid(WIDTH, HEIGHT) @ (0.25 / WIDTH, -0.10 / HEIGHT))[..., None] * (1.04, 1.0, 0.93)

    def look(matrix: Floats, gain: Floats, noise: float) -> Picture:
        view = gain * cv2.warpPerspective(source, matrix, (WIDTH, HEIGHT)) + noise * rng.standard_normal(SHAPE)
        return (255 * view.clip(0, 1)).round().astype(np.uint8)

    reference, query = look(to_reference, np.ones(3), 0.015), look(homography @ to_reference, light, 0.02)
    windows = grid(*TILES).reshape(-1, 2) * TILE + (29.5, 33.5) - ORIGIN
    return Views(reference, query, homography, windows[((windows >= 0) & (windows < (WIDTH, HEIGHT))).all(1)])


def grid(width: int = WIDTH // CELL, height: int = HEIGHT // CELL) -> Floats:
    """`(x, y)` of every cell, `(height, width, 2)`."""
    return np.stack(np.meshgrid(np.arange(float(width)), np.arange(float(height))), -1)


def to_pixels(cells: Floats) -> Floats:
    """Coordinates in cells → in pixels of the picture."""
    return cells * CELL + (CELL - 1) / 2


def to_cells(pixels: Floats) -> Floats:
    """The inverse of `to_pixels`."""
    return (pixels - (CELL - 1) / 2) / CELL


def describe(picture: Picture) -> Tensor:
    """Dense descriptors: gradients by orientation, and colour, sampled on rings around each cell's centre.

    Rings widen and blur outwards, as in DAISY, and reach beyond the window, as a deep feature's receptive field does.
    Colours are relative to their mean over the rings. RGB `(H, W, 3)` → `(1, D, H/CELL, W/CELL)`, L2-normalised.
    """
    import cv2

    lab = cv2.GaussianBlur(cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), (0, 0), 1)
    dx, dy = (cv2.Sobel(lab[..., 0], cv2.CV_32F, *order) for order in ((1, 0), (0, 1)))
    angles = 2 * np.pi * np.arange(ORIENTATIONS) / ORIENTATIONS
    gradients = [np.maximum(0, np.cos(a) * dx + np.sin(a) * dy) for a in angles]
    channels = np.stack([*gradients, *np.moveaxis(COLOUR_GAIN * lab, -1, 0)]).astype(np.float32)
    samples = []
    for radius, points, blur in RINGS:
        blurred = [cv2.GaussianBlur(channel, (0, 0), blur) for channel in channels]
        for a in 2 * np.pi * np.arange(points) / points:
            at = to_pixels(grid()) + radius * np.array([np.cos(a), np.sin(a)])
            x, y = np.moveaxis(at.astype(np.float32), -1, 0)
            samples.append([cv2.remap(b, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT) for b in blurred])
    values = np.array(samples)  # (points, channels, H/CELL, W/CELL)
    values[:, ORIENTATIONS:] -= values[:, ORIENTATIONS:].mean(0)
    return F.normalize(torch.from_numpy(values).flatten(0, 1)[None], dim=1)


def true_matches(homography: Floats) -> Floats:
    """Where each cell's centre lies in the query, `(H/CELL, W/CELL, 2)` as `(x, y)` in cells."""
    x, y, depth = np.moveaxis(np.insert(to_pixels(grid()), 2, 1, axis=-1) @ homography.T, -1, 0)
    return to_cells(np.stack([x / depth, y / depth], -1))


def most_ambiguous(windows: Floats, similarity: Floats) -> tuple[int, int]:
    """Cell `(x, y)` of the inner window that is most like all the others, by the reference's plain self-correlation."""
    x, y = np.rint(to_cells(windows)).astype(int).T
    inner = (windows > TILE).all(1) & (windows < (WIDTH - TILE[0], HEIGHT - TILE[1])).all(1)
    likeness = similarity[y * (WIDTH // CELL) + x][:, y, x].sum(0)
    best = np.where(inner, likeness, -np.inf).argmax()
    return int(x[best]), int(y[best])


def measure(name: str, volume: Floats, matches: Floats, cell: tuple[int, int]) -> Measure:
    """Measures of a volume `(H/CELL·W/CELL, H/CELL, W/CELL)` against the true matches, with one cell `(x, y)` shown."""
    distance = np.linalg.norm(grid().reshape(-1, 1, 1, 2) - matches, axis=-1)
    error = np.take_along_axis(distance, volume.argmax(0)[None], 0)[0]
    at_truth, elsewhere = (np.where(mask, volume, -np.inf).max(0) for mask in (distance <= PEAK, distance > PEAK))
    ratio = np.where(at_truth > 0, elsewhere / at_truth, np.inf)
    visible = ((matches >= 0) & (matches <= grid()[-1, -1])).all(-1)
    x, y = cell
    values = CELL * error[y, x], ratio[y, x], np.median(ratio[visible]), (error[visible] <= HIT).mean()
    return Measure(name, *map(float, values))


@torch.no_grad()
def study(seed: int = SEED) -> Study:
    """Render the façade, describe both views, correlate them plainly and by GOCor, and measure."""
    views = render_views(seed)
    reference, query = describe(views.reference), describe(views.query)
    explanation = GlobalGOCor(channels=reference.shape[1], query_objective=False).explain(reference, query, ITERS)
    against_reference = [global_correlation(reference, reference), *explanation.reference_volumes]
    against_query = [global_correlation(reference, query), *explanation.query_volumes]
    names = ["plain correlation", *(f"GOCor, {n} iteration{'s' * (n != 1)}" for n in range(ITERS + 1))]
    matches = true_matches(views.homography)
    x, y = cell = most_ambiguous(views.windows, against_reference[0][0].numpy())
    size = reference.shape[2:]
    return Study(
        views=views,
        pixel=to_pixels(np.array(cell)),
        truth=to_pixels(matches[y, x]),
        reference_scores=tuple(v[0, :, y, x].view(size).numpy() for v in against_reference),
        query_scores=tuple(v[0, :, y, x].view(size).numpy() for v in against_query),
        measures=tuple(measure(n, v[0].numpy(), matches, cell) for n, v in zip(names, against_query, strict=True)),
    )
