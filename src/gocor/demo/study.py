"""Plain correlation and GOCor compared on the rendered façade, whose true correspondences are known exactly.

No trained network takes part. Descriptors are hand-made, and the GOCor module has its initial parameters. Its query
term is left out, because the operator R of that term is initialised with random numbers.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..modules import GlobalGOCor
from ..ops.correlation import global_correlation
from ..ops.homography import project
from ..utils.arrays import Picture
from .facade import HEIGHT, SEED, TILE, WIDTH, Floats, Views, grid, render_views

CELL = 12  # pixels of a feature cell along a side
COLUMNS, ROWS = WIDTH // CELL, HEIGHT // CELL

# Descriptors sample rings around a pixel: radius in pixels, number of points, standard deviation of the blur in pixels.
RINGS = ((0, 1, 7), (22, 6, 9), (44, 8, 11), (66, 10, 14), (88, 12, 17))
ORIENTATIONS, COLOUR_GAIN = 4, 8.0

ITERS = 7
HIT_RADIUS = 1.5  # cells: a maximum at this distance from the true match, or nearer, is correct
PEAK_RADIUS = 2.5  # cells: half the distance to the next window; scores beyond belong to another window


@dataclass(frozen=True)
class Measure:
    """How well a volume finds the true match, for the shown pixel and for all pixels that are visible in both views."""

    name: str
    error: float  # pixels from the shown pixel's highest score to its true match
    ratio: float  # the shown pixel's highest score elsewhere, divided by its highest score at the true match
    median_ratio: float  # median of the same ratio over all pixels
    hits: float  # share of all pixels whose highest score is at the true match


@dataclass(frozen=True)
class Study:
    """One reference pixel and its true match, `(x, y)`; for each volume its scores `(ROWS, COLUMNS)` and a measure."""

    views: Views
    pixel: Floats
    truth: Floats
    reference_scores: tuple[Floats, ...]
    query_scores: tuple[Floats, ...]
    measures: tuple[Measure, ...]


@torch.no_grad()
def study(seed: int = SEED) -> Study:
    """Render both views, compute descriptors, plain correlation and GOCor after each iteration, and measure."""
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


def to_pixels(cells: Floats) -> Floats:
    """Convert coordinates in cells to pixels of the picture."""
    return cells * CELL + (CELL - 1) / 2


def to_cells(pixels: Floats) -> Floats:
    """Convert coordinates in pixels of the picture to cells."""
    return (pixels - (CELL - 1) / 2) / CELL


def describe(picture: Picture) -> Tensor:
    """Dense descriptors: oriented gradients and colours, sampled on rings around the centre of each cell.

    Outer rings are larger and more blurred, as in DAISY. They reach beyond the window, like the receptive field of a
    deep feature. Colours are relative to their mean over the rings.

    Args:
        picture: RGB `(H, W, 3)`.

    Returns:
        `(1, D, ROWS, COLUMNS)`, L2-normalised.
    """
    import cv2

    lab = cv2.GaussianBlur(cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), (0, 0), 1)
    dx, dy = (cv2.Sobel(lab[..., 0], cv2.CV_32F, *order) for order in ((1, 0), (0, 1)))
    angles = 2 * np.pi * np.arange(ORIENTATIONS) / ORIENTATIONS
    gradients = [np.maximum(0, np.cos(a) * dx + np.sin(a) * dy) for a in angles]
    channels = np.stack([*gradients, *np.moveaxis(COLOUR_GAIN * lab, -1, 0)]).astype(np.float32)
    centres = to_pixels(grid(COLUMNS, ROWS))
    samples = []
    for radius, points, blur in RINGS:
        blurred = [cv2.GaussianBlur(channel, (0, 0), blur) for channel in channels]
        for a in 2 * np.pi * np.arange(points) / points:
            positions = centres + radius * np.array([np.cos(a), np.sin(a)])
            x, y = np.moveaxis(positions.astype(np.float32), -1, 0)
            samples.append([cv2.remap(b, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT) for b in blurred])
    values = np.array(samples)  # (points, channels, ROWS, COLUMNS)
    values[:, ORIENTATIONS:] -= values[:, ORIENTATIONS:].mean(0)
    return F.normalize(torch.from_numpy(values).flatten(0, 1)[None], dim=1)


def true_matches(homography: Floats) -> Floats:
    """Positions of all cells' centres in the query, `(ROWS, COLUMNS, 2)` as `(x, y)` in cells."""
    return to_cells(project(np.asarray(homography, np.float64), to_pixels(grid(COLUMNS, ROWS)).astype(np.float64)))


def most_ambiguous(windows: Floats, similarity: Floats) -> tuple[int, int]:
    """Cell `(x, y)` of the inner window that is most similar to all others, by the reference's self-correlation."""
    x, y = np.rint(to_cells(windows)).astype(int).T
    inner = (windows > TILE).all(1) & (windows < (WIDTH - TILE[0], HEIGHT - TILE[1])).all(1)
    total = similarity[y * COLUMNS + x][:, y, x].sum(0)
    best = np.where(inner, total, -np.inf).argmax()
    return int(x[best]), int(y[best])


def measure(name: str, volume: Floats, matches: Floats, cell: tuple[int, int]) -> Measure:
    """Compare a volume `(ROWS·COLUMNS, ROWS, COLUMNS)` with the true matches; `cell` is the shown `(x, y)`."""
    cells = grid(COLUMNS, ROWS)
    distance = np.linalg.norm(cells.reshape(-1, 1, 1, 2) - matches, axis=-1)
    error = np.take_along_axis(distance, volume.argmax(0)[None], 0)[0]
    near = distance <= PEAK_RADIUS
    at_truth, elsewhere = (np.where(mask, volume, -np.inf).max(0) for mask in (near, ~near))
    ratio = np.where(at_truth > 0, elsewhere / at_truth, np.inf)
    visible = ((matches >= 0) & (matches <= cells[-1, -1])).all(-1)
    x, y = cell
    values = CELL * error[y, x], ratio[y, x], np.median(ratio[visible]), (error[visible] <= HIT_RADIUS).mean()
    return Measure(name, *map(float, values))
