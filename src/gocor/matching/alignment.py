"""Images of a wide baseline brought closer, before they are matched.

The coarse levels of GLU-Net look at 256×256 pixels and find much of a motion whose rest the fine levels cannot follow.
So a homography is fitted to what they find, the query is seen through it, and they look again, some times over: each
time less motion is left. Where they find little, they look at the query shifted, and turned. Of several answers, which
buildings with look-alike parts have, the one counts whose fine detail agrees. What is explained by a homography need
not be all of the motion: the network then matches the reference with the query as seen through it, and finds the rest,
planar or not.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..models.network import MatchingNetwork, resize_image
from ..ops.homography import NEAREST, Matrix, depth, project, project_map, resizing
from ..ops.patches import CONTRAST, patch_correlation
from ..ops.warp import forward_backward_error, pixel_grid, warp
from .planar import prefer_homography

SIDE = 256  # of the images that coarse matches are made on
ROUNDS = 4  # of looking and fitting from one start
TURNS = (45, -45, 90, -90, 135, -135, 180)  # degrees to try where the images as they are have little in common
SHIFTS = ((-0.75, 0), (0.75, 0), (0, -0.75), (0, 0.75))  # sides of the image to try, as in a panorama
CLEAR = 0.15  # support from which on no shifts are tried,
SURE = 0.05  # and no turns
RIVAL = 0.3  # share of the most support that another answer needs to be considered,
ELSEWHERE = 16.0  # and pixels of 256 that it is away, the median over points
FINE = 512  # side of the images whose detail is compared
CHANCE = 0.5  # correlation that patches of look-alikes have
LEAST = 0.01  # support of an alignment
GAIN = 1.05  # by how much it must exceed the support of the images as they are
SMALL = 0.08  # corners that move by less than this share of the image need no alignment
CONSISTENT = (4.0, 12.0)  # pixels of 256 from home after going there and back: points to fit to, else those
FEWEST = 24  # of them
INLIER = 4.0  # pixels of 256
SCALES = (1 / 6, 6)  # that a matrix may have where it is supported
OUTSIDE = 0.5  # sides of the query that a match may lie outside of it
APART = 2  # cells of 16×16 that a feature resembles anyway
ALIKE = 12  # it is as common as the so-many-th most similar elsewhere says
CLOSE_UP = 1.4  # from this scale on the aligned query has twice the reference's side, to lose less of its detail


class View(NamedTuple):
    """What the coarse levels make of a reference and the query seen through a matrix; all in pixels of 256×256.

    Attributes:
        matrix: reference → query.
        points: of the reference, `(N, 2)`.
        targets: where they are in the query as seen, `(N, 2)`.
        error: how far from home there and back leads, infinite outside, `(N,)`.
        support: mean over cells of consistency × by how much the match is more similar than the reference's own others.
    """

    matrix: Matrix
    points: NDArray[np.float64]
    targets: NDArray[np.float64]
    error: NDArray[np.float64]
    support: float


@torch.inference_mode()
def match_wide(
    network: MatchingNetwork, reference: Tensor, query: Tensor, *, back: bool = True, **options: Any
) -> tuple[Tensor, Tensor]:
    """Flow between images, by way of the aligned query where they are far apart, straightened where they show a plane.

    Args:
        network: a GLU-Net, in evaluation mode.
        reference: RGB images `(B, 3, H, W)` in [0, 255].
        query: RGB images `(B, 3, Hq, Wq)`.
        back: whether the flow back is wanted; else it is zero where it was not needed.
        **options: those of `MatchingNetwork.forward`.

    Returns:
        Flow `(B, 2, H, W)`, and from the query to the reference, `(B, 2, Hq, Wq)`, infinite where a pixel of the query
        is beyond the horizon of the homography.
    """
    if not network.can_align:
        raise ValueError(f"{network.name or type(network).__name__} gives no coarse matches, so it cannot align images")
    pairs = list(zip(reference[:, None], query[:, None], strict=True))
    aligners = [Aligner(network, *pair) for pair in pairs]
    matrices = [aligner.matrix() for aligner in aligners]
    forward, backward = (images.new_zeros(len(images), 2, *images.shape[2:]) for images in (reference, query))
    close = [i for i, matrix in enumerate(matrices) if matrix is None]
    unsure = [i for i in close if aligners[i].best.support < SURE]
    returning = close if back else unsure
    if close:
        forward[close] = network(reference[close], query[close], **options)
    if returning:
        backward[returning] = network(query[returning], reference[returning], **options)
    for i in unsure:
        matrices[i] = aligners[i].matrix_of(forward[i : i + 1], backward[i : i + 1])
    for i, matrix in enumerate(matrices):
        if matrix is not None:
            there, home = match_aligned(network, *pairs[i], matrix, back=back, **options)
            forward[i : i + 1] = there
            if home is not None:
                backward[i : i + 1] = home
        forward[i : i + 1] = prefer_homography(*pairs[i], forward[i : i + 1])
        if back:
            backward[i : i + 1] = prefer_homography(*pairs[i][::-1], backward[i : i + 1])
    return forward, backward


@torch.inference_mode()
def match_aligned(
    network: MatchingNetwork, reference: Tensor, query: Tensor, matrix: Matrix, *, back: bool = True, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """As `match_wide`, by way of the query as seen through a homography, reference pixel → query pixel."""
    height, width = reference.shape[2:]
    centre = np.array([[(width - 1) / 2, (height - 1) / 2]])
    times = 2.0 if _scale(matrix, centre) > CLOSE_UP else 1.0
    if (limit := options.get("max_size")) is not None:  # the network would not look at more
        times = min(times, limit / max(height, width))
    size = max(1, round(times * height)), max(1, round(times * width))
    to_query = matrix @ np.linalg.inv(resizing(reference.shape[2:], size))
    seen = see_through(query, to_query, size)
    forward = network(reference, seen, **options)
    there = _near(project_map(to_query, forward + _grid(forward)), query) - _grid(forward)
    if not back:
        return there, None
    backward = network(seen, reference, **options)
    to_seen, grid = np.linalg.inv(to_query), pixel_grid(query.shape[2], query.shape[3], device=query.device)
    at = project_map(to_seen, grid)
    home = at + warp(backward, at - grid, padding="border") - grid
    return there, torch.where(depth(to_seen, grid) > 0, home, torch.inf)


def see_through(image: Tensor, matrix: Matrix, size: tuple[int, int]) -> Tensor:
    """An image `(1, 3, H, W)` through a homography, pixels of `size` → its pixels; grey where it shows nothing."""
    grid = pixel_grid(*size, device=image.device)
    mapping, inside = project_map(matrix, grid), _shown(image, matrix, size)
    shown = inside[0, 0, ::8, ::8].nonzero().cpu().double().numpy()[:, ::-1] * 8
    halvings = round(math.log2(max(1.0, _scale(matrix, shown)))) if len(shown) else 0
    for _ in range(halvings):  # without aliasing
        image = F.avg_pool2d(image, 2, ceil_mode=True, count_include_pad=False)
    mapping = (mapping + 0.5) / 2**halvings - 0.5
    return torch.where(inside, warp(image, mapping - grid, padding="border"), 127.5)


def _shown(image: Tensor, matrix: Matrix, size: tuple[int, int]) -> Tensor:
    """Where `see_through` shows the image: `(1, 1, *size)` bool."""
    grid = pixel_grid(*size, device=image.device)
    x, y = project_map(matrix, grid).split(1, 1)
    inside = (x > -0.5) & (x < image.shape[3] - 0.5) & (y > -0.5) & (y < image.shape[2] - 0.5)
    return inside & (depth(matrix, grid) > 0)


def _near(points: Tensor, image: Tensor) -> Tensor:
    """Points `(1, 2, H, W)` that are far outside of an image pulled closer: there, a homography means nothing."""
    limits = [
        x.clamp(-OUTSIDE * side, (1 + OUTSIDE) * side)
        for x, side in zip(points.split(1, 1), (image.shape[3], image.shape[2]), strict=True)
    ]
    return torch.cat(limits, 1)


def _grid(flow: Tensor) -> Tensor:
    return pixel_grid(flow.shape[2], flow.shape[3], flow.dtype, flow.device)


def _support(view: View) -> float:
    return view.support


def _to_side(image: Tensor) -> Matrix:
    return resizing(image.shape[2:], (SIDE, SIDE))


def _shift(x: float, y: float) -> Matrix:
    """By shares of the sides, in pixels of 256×256."""
    return np.array([[1, 0, x * SIDE], [0, 1, y * SIDE], [0, 0, 1]])


def _apart(view: View, other: View) -> bool:
    """Whether two views say that the points which the first is sure of are elsewhere in the query."""
    points = view.points[view.error < CONSISTENT[1]]
    if not len(points):
        return True
    distance = np.linalg.norm(project(view.matrix, points) - project(other.matrix, points), axis=1)
    return bool(np.median(distance) > ELSEWHERE)


def _turn(degrees: float, reference: Tensor, query: Tensor) -> Matrix:
    """A rotation about the centres of both images, of their own shapes, in pixels of 256×256."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    (height, width), (query_height, query_width) = reference.shape[2:], query.shape[2:]
    scale = math.sqrt(query_height * query_width / (height * width))
    to_centre = np.array([[1, 0, -(width - 1) / 2], [0, 1, -(height - 1) / 2], [0, 0, 1]])
    turn = np.array(
        [
            [scale * cos, -scale * sin, (query_width - 1) / 2],
            [scale * sin, scale * cos, (query_height - 1) / 2],
            [0, 0, 1],
        ]
    )
    return np.asarray(_to_side(query) @ turn @ to_centre @ np.linalg.inv(_to_side(reference)))


def _jacobian(matrix: Matrix, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of a homography at points `(N, 2)`: `(N, 2, 2)`."""
    step = 1e-3
    shifts = [project(matrix, points + np.array(d) * step) - project(matrix, points) for d in ((1, 0), (0, 1))]
    return np.stack(shifts, -1) / step


def _scale(matrix: Matrix, points: NDArray[np.float64]) -> float:
    """How many pixels of its image a homography crosses per pixel: the median over points."""
    return float(np.median(np.sqrt(np.abs(np.linalg.det(_jacobian(matrix, points))))))


class Aligner:
    """Looks for a homography that explains much of the motion between two images.

    Args:
        network: see `match_wide`.
        reference: RGB image `(1, 3, H, W)` in [0, 255].
        query: RGB image `(1, 3, Hq, Wq)`.

    Attributes:
        best: the view with most support so far.
    """

    def __init__(self, network: MatchingNetwork, reference: Tensor, query: Tensor) -> None:
        self.network, self.image, self.query = network, reference, query
        self.to_side, self.from_side = _to_side(reference), np.linalg.inv(_to_side(query))
        self.turns = [_turn(angle, reference, query) for angle in TURNS]
        self.reference = self._features(resize_image(reference, (SIDE, SIDE), published=False))
        features = self._normal(self.reference[1])  # (1, D, 16, 16)
        flat = features.flatten(2)[0]
        likeness = flat.mT @ flat
        cell = _grid(features).flatten(2)[0]
        near = ((cell[:, :, None] - cell[:, None]).abs() <= APART).all(0)
        others = likeness.masked_fill(near, -1.0).topk(ALIKE, 1).values[:, -1]
        self.described, self.common = features, others.view(1, 1, *features.shape[2:])
        self.start = self.best = self.look(np.eye(3))

    def matrix(self) -> Matrix | None:
        """Reference pixel → query pixel; None where the images are close already, or nothing is found."""
        found = [self.improve(self.start)]
        if found[0].support < CLEAR:
            shifted = [self.once_more(self.look(_shift(*shift))) for shift in SHIFTS]
            found += [self.improve(view) for view in shifted if view.support >= RIVAL * found[0].support]
        if max(found, key=_support).support < SURE:
            turned = max((self.once_more(self.look(turn)) for turn in self.turns), key=_support)
            found.append(self.improve(turned))
        self.best = self.choose(found)
        return self._worthwhile()

    def matrix_of(self, forward: Tensor, backward: Tensor) -> Matrix | None:
        """The same, beginning with what a flow and its way back agree on."""
        size = forward.shape[2:]
        error = forward_backward_error(forward, backward)[0, 0, ::4, ::4].flatten()
        points = _grid(forward)[0, :, ::4, ::4].flatten(1).mT
        targets = points + forward[0, :, ::4, ::4].flatten(1).mT
        starts, ends, errors = (x.double().cpu().numpy() for x in (points, targets, error))
        starts, ends = project(self.to_side, starts), project(np.linalg.inv(self.from_side), ends)
        view = View(np.eye(3), starts, ends, errors * SIDE / max(size), self.start.support)
        self.best = self.choose([self.best, self.improve(view)])
        return self._worthwhile()

    def choose(self, views: list[View]) -> View:
        """The view with most support; of several that are far apart and have much of it, the one that is most exact."""
        views = sorted(views, key=_support, reverse=True)
        rivals: list[View] = []
        for view in views:
            if view.support >= max(LEAST, RIVAL * views[0].support) and all(_apart(other, view) for other in rivals):
                rivals.append(view)
        return max(rivals, key=self.exactness) if len(rivals) > 1 else views[0]

    def exactness(self, view: View) -> float:
        """How well fine detail agrees: share of the image that is matched, there and back × correlation of patches."""
        detail = resize_image(self.image, (FINE, FINE), published=False)
        to_query = self.from_side @ view.matrix @ resizing((FINE, FINE), (SIDE, SIDE))
        seen = see_through(self.query, to_query, (FINE, FINE))
        pair = torch.cat([detail, seen])
        forward, backward = self.network(pair, pair.flip(0), min_size=0).float().split(1)
        shown = _shown(self.query, to_query, (FINE, FINE)).float()
        alike, contrast = patch_correlation(detail, warp(seen, forward, padding="border"))
        counts = (forward_backward_error(forward, backward) < 2) & (contrast > CONTRAST) & (warp(shown, forward) > 0.9)
        share, correlation = counts.float().mean(), alike[counts].mean() if counts.any() else alike.new_zeros(())
        return float(share * (correlation - CHANCE).clamp(min=0))

    def _worthwhile(self) -> Matrix | None:
        best, corners = self.best, np.array([[0.0, 0], [SIDE, 0], [SIDE, SIDE], [0, SIDE]]) - 0.5
        if best.support < max(LEAST, GAIN * self.start.support):
            return None
        if np.abs(project(best.matrix, corners) - corners).max() < SMALL * SIDE:
            return None
        return np.asarray(self.from_side @ best.matrix @ self.to_side)

    def look(self, matrix: Matrix) -> View:
        """Match the reference with the query as seen through a matrix."""
        seen = self._features(see_through(self.query, self.from_side @ matrix, (SIDE, SIDE)))
        fine, coarse = (torch.cat(both) for both in zip(self.reference, seen, strict=True))
        flows = self.network.coarse_flow((fine, coarse), (fine.flip(0), coarse.flip(0)))  # there and back
        forward, backward = flows.float().split(1)  # (1, 2, 32, 32)
        cell = SIDE / forward.shape[3]
        points = (_grid(forward) + 0.5) * cell - 0.5
        targets = points + forward
        in_cells = forward / cell
        error = torch.linalg.vector_norm(forward + warp(backward, in_cells, padding="border"), dim=1, keepdim=True)
        lands = project_map(matrix, targets)
        inside = ((targets >= 0) & (targets <= SIDE - 1) & (lands >= 0) & (lands <= SIDE - 1)).all(1, keepdim=True)
        inside = inside & (depth(matrix, targets) > 0)
        error = torch.where(inside & error.isfinite(), error, torch.inf)

        features = self._normal(seen[1])
        matched = F.normalize(warp(features, F.avg_pool2d(in_cells, 2) / 2, padding="border"), dim=1)  # 16×16 cells
        similar = (self.described * matched).sum(1, keepdim=True)
        weight = F.avg_pool2d(torch.exp(-error / CONSISTENT[0]), 2)
        support = (weight * (similar - self.common).clamp(min=0)).mean()
        starts, ends = (x.flatten(2)[0].mT.double().cpu().numpy() for x in (points, targets))
        return View(matrix, starts, ends, error.flatten().double().cpu().numpy(), float(support))

    def once_more(self, view: View) -> View:
        """The better of a view and the one that a homography fitted to it gives."""
        matrix = fit(view)
        return view if matrix is None else max(view, self.look(matrix), key=_support)

    def improve(self, view: View) -> View:
        """Fit and look again while it helps."""
        for _ in range(ROUNDS):
            matrix = fit(view)
            if matrix is None:
                break
            other = self.look(matrix)
            if other.support <= view.support:
                break
            view = other
        return view

    def _features(self, image: Tensor) -> tuple[Tensor, ...]:
        return self.network.coarse_features(image)

    @staticmethod
    def _normal(features: Tensor) -> Tensor:
        features = features.float()
        return F.normalize(features - features.mean((2, 3), keepdim=True), dim=1)


def fit(view: View) -> Matrix | None:
    """The homography, of reference → query, of the points that are consistent; None where there is no sane one."""
    import cv2

    for limit in CONSISTENT:
        chosen = view.error < limit
        if chosen.sum() >= FEWEST:
            break
    else:
        return None
    step, inliers = cv2.findHomography(
        view.points[chosen], view.targets[chosen], cv2.USAC_MAGSAC, INLIER, maxIters=5000, confidence=0.999
    )
    if step is None or not np.isfinite(step).all():
        return None
    matrix = view.matrix @ step
    supported = view.points[chosen][inliers.ravel() > 0]
    if len(supported) < FEWEST // 2 or abs(matrix[2, 2]) < 1e-9:
        return None
    matrix = matrix / matrix[2, 2]  # on this side of the horizon depths are positive, also those of its inverse
    if ((supported @ matrix[2, :2] + 1) < NEAREST).any():
        return None
    jacobian = _jacobian(matrix, supported)
    scales = np.linalg.svd(jacobian, compute_uv=False)
    smallest, largest = np.median(scales[:, 1]), np.median(scales[:, 0])
    sane = np.linalg.det(jacobian).min() > 0 and smallest > SCALES[0] and largest < SCALES[1]
    return np.asarray(matrix) if sane else None
