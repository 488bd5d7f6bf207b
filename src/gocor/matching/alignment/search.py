"""The search for a homography that explains most of the motion between the images of a pair."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ...models.network import MatchingNetwork
from ...models.resizing import resize_image
from ...ops.homography import NEAREST, Matrix, jacobian, project, resizing
from ...ops.patches import CONTRAST, patch_correlation
from ...ops.warp import forward_backward_error, pixel_grid, warp
from ...utils.arrays import Array
from ..features import Images
from .settings import DEFAULT_ALIGNMENT, AlignmentSettings
from .views import CoarseMatcher, Start, View
from .warping import visible_mask, warp_perspective

FLOW_STRIDE = 4  # A homography is fitted to every fourth pixel of a full-resolution flow.

SUPPORT = attrgetter("support")
UNALIGNED: Matrix = np.eye(3)


class Matcher(Protocol):
    """What `refine` needs of a `CoarseMatcher`, or of one that is confined to a part of the image."""

    settings: AlignmentSettings
    side: int

    def match(self, starts: Sequence[Start]) -> list[View]:
        """See `CoarseMatcher.match`."""


class AlignmentSearch:
    """Searches the homographies of all pairs of a batch, in lockstep.

    Args:
        network: one that gives coarse matches, in evaluation mode.
        reference: RGB images `(B, 3, H, W)` in [0, 255].
        query: RGB images `(B, 3, Hq, Wq)`.
        settings: settings of the alignment.

    Attributes:
        unaligned: view of each pair without alignment.
        best: best view of each pair so far.
    """

    def __init__(
        self,
        network: MatchingNetwork,
        reference: Tensor | Images,
        query: Tensor | Images,
        settings: AlignmentSettings,
    ) -> None:
        self.settings = settings
        self.matcher = CoarseMatcher(network, Images.of(reference), Images.of(query), settings)
        self.unaligned = self.matcher.match_unaligned()
        self.best = list(self.unaligned)

    def run(self) -> None:
        """Search from the unaligned images, and for pairs with little support also from changed queries.

        Shifted, then rotated, then tilted and zoomed queries are tried, as long as the support stays low.
        """
        found = [[view] for view in refine(self.matcher, self.unaligned)]
        self._try_shifts(found)
        self._try_turns(found)
        self._try_distant(found)
        self.best = [self.choose(views) for views in found]

    def _try_shifts(self, found: list[list[View]]) -> None:
        """Add alignments of shifted queries that are rivals of those found; `found` has a list of views per pair."""
        settings, matcher = self.settings, self.matcher
        weak = _weak(found, settings.support_without_shifts)
        starts = [(pair, matcher.shift(x, y)) for pair in weak for x, y in settings.shifts]
        shifted = refine(self.matcher, matcher.match(starts), rounds=1)
        rivals = [v for v in shifted if v.support >= settings.rival_support * found[v.pair][0].support]
        for view in refine(self.matcher, rivals):
            found[view.pair].append(view)

    def _try_turns(self, found: list[list[View]]) -> None:
        """Add the best alignment of rotated queries."""
        weak = _weak(found, self.settings.support_without_turns)
        starts = [(pair, self.matcher.rotation(degrees)) for pair in weak for degrees in self.settings.turns]
        turned = refine(self.matcher, self.matcher.match(starts), rounds=1)
        for view in refine(self.matcher, _strongest(turned, weak, 1)):
            found[view.pair].append(view)

    def _try_distant(self, found: list[list[View]]) -> None:
        """Add alignments of images that are tilted, or of which one shows only a small part of the other.

        Each start is matched once, and those with the highest support are refined.
        """
        weak, matcher = _weak(found, self.settings.support_without_turns), self.matcher
        if not weak:
            return
        starts = [*matcher.tilted(), *matcher.enlarged()]
        views = matcher.match([(pair, start) for pair in weak for start in starts])
        for view in refine(self.matcher, _strongest(views, weak, self.settings.distant_starts)):
            found[view.pair].append(view)
        # A query that shows a small part of the reference has more support if the roles are exchanged.
        other = CoarseMatcher(matcher.network, matcher.query[weak], matcher.reference[weak], self.settings)
        closer = other.match([(i, start) for i in range(len(weak)) for start in other.enlarged()])
        for view in refine(other, _strongest(closer, range(len(weak)), 1)):
            found[weak[view.pair]].append(_from_other_side(view, weak[view.pair]))

    def run_from_flow(self, pairs: Sequence[int], forward: Tensor, backward: Tensor) -> None:
        """Search again from the consistent part of full-resolution flows of some pairs, `(B, 2, H, W)`."""
        at = list(pairs)
        error = forward_backward_error(forward[at], backward[at]) * (self.matcher.side / max(forward.shape[2:]))
        points = pixel_grid(forward.shape[2], forward.shape[3], forward.dtype, forward.device)
        starts, ends, errors = (
            x[..., ::FLOW_STRIDE, ::FLOW_STRIDE].flatten(2).mT.double().cpu().numpy()
            for x in (points, points + forward[at], error)
        )
        starts, ends = project(self.matcher.to_coarse, starts[0]), project(self.matcher.query_to_coarse, ends)
        views = [
            View(UNALIGNED, starts, ends[i], errors[i, :, 0], self.unaligned[pair].support, pair)
            for i, pair in enumerate(pairs)
        ]
        for view in refine(self.matcher, views):
            self.best[view.pair] = self.choose([self.best[view.pair], view])

    def homography(self, pair: int) -> Matrix | None:
        """Homography reference pixel → query pixel of a pair; `None` if there is no large motion, or none was found."""
        matrix = self.alignment(pair)
        return None if np.array_equal(matrix, UNALIGNED) else self.in_pixels(matrix)

    def alignment(self, pair: int) -> Matrix:
        """The same in coarse pixels; `UNALIGNED` if there is no large motion, or none was found."""
        best, side, settings = self.best[pair], self.matcher.side, self.settings
        if best.support < max(settings.min_support, settings.min_gain * self.unaligned[pair].support):
            return UNALIGNED
        return best.matrix if _moves_corners(best.matrix, side, settings) else UNALIGNED

    def in_pixels(self, matrix: Matrix) -> Matrix:
        """A homography of coarse pixels, as one of reference → query pixels."""
        return np.asarray(np.linalg.inv(self.matcher.query_to_coarse) @ matrix @ self.matcher.to_coarse)

    def choose(self, views: Sequence[View]) -> View:
        """The view with the highest support. If there are rivals, the one whose fine detail agrees best."""
        ordered = sorted(views, key=SUPPORT, reverse=True)
        limit = max(self.settings.min_support, self.settings.rival_support * ordered[0].support)
        rivals: list[View] = []
        for view in ordered:
            if view.support >= limit and all(self.are_apart(other, view) for other in rivals):
                rivals.append(view)
        return max(rivals, key=self.detail_agreement) if len(rivals) > 1 else ordered[0]

    def are_apart(self, view: View, other: View) -> bool:
        """Whether two views match the consistent points of the first to different places in the query."""
        points = view.points[view.error < self.settings.consistency[-1] * self.matcher.side]
        if not len(points):
            return True
        distance = np.linalg.norm(project(view.matrix, points) - project(other.matrix, points), axis=1)
        return bool(np.median(distance) > self.settings.rival_distance * self.matcher.side)

    def detail_agreement(self, view: View) -> float:
        """Share of the reference that is matched consistently, times the correlation of the matched patches.

        Buildings with look-alike parts have several alignments. Only the right one agrees in fine detail.
        """
        settings, matcher, size = self.settings, self.matcher, (self.settings.rival_side,) * 2
        reference, query = (images.pixels[view.pair : view.pair + 1] for images in (matcher.reference, matcher.query))
        reference = resize_image(reference, size, published=False)
        to_query = np.linalg.inv(matcher.query_to_coarse) @ view.matrix @ resizing(size, (matcher.side,) * 2)
        warped, visible = warp_perspective(query, to_query, size), visible_mask(query, to_query, size)
        images = torch.cat([reference, warped])
        forward, backward = matcher.network(images, images.flip(0), min_size=0).float().split(1)
        correlation, contrast = patch_correlation(reference, warp(warped, forward, padding="border"))
        consistent = forward_backward_error(forward, backward) < settings.rival_consistency
        counted = (consistent & (contrast > CONTRAST) & (warp(visible.float(), forward) > 0.9)).float()
        mean = (correlation * counted).sum() / counted.sum().clamp(min=1)
        return float(counted.mean() * (mean - settings.lookalike_correlation).clamp(min=0))


def refine(matcher: Matcher, views: Sequence[View], rounds: int | None = None) -> list[View]:
    """Fit a homography to each view and match again, as long as its support grows.

    A view with much support is not matched again if its homography hardly moves the image, or if the last round hardly
    gained support: the images are close.
    """
    settings = matcher.settings
    views, active = list(views), list(range(len(views)))
    for _ in range(settings.rounds if rounds is None else rounds):
        fits = [(i, fit_homography(views[i], matcher.side, settings)) for i in active]
        weak = {i for i in active if views[i].support < settings.close_support}
        moving = [(i, m) for i, m in fits if m is not None and (i in weak or _moves_corners(m, matcher.side, settings))]
        matched = matcher.match([(views[i].pair, matrix) for i, matrix in moving])
        active = []
        for (i, _), view in zip(moving, matched, strict=True):
            if view.support > views[i].support:
                if i in weak or view.support > (1 + settings.min_round_gain) * views[i].support:
                    active.append(i)
                views[i] = view
    return views


def _moves_corners(matrix: Matrix, side: int, settings: AlignmentSettings) -> bool:
    """Whether a homography of coarse pixels moves a corner of the image far enough for an alignment."""
    corners = np.array([[0.0, 0], [side, 0], [side, side], [0, side]]) - 0.5
    return bool(np.abs(project(matrix, corners) - corners).max() >= settings.min_corner_motion * side)


def _from_other_side(view: View, pair: int) -> View:
    """The view of a pair whose roles were exchanged, as a view of the pair itself with the same support."""
    points, targets = project(view.matrix, view.targets), project(view.matrix, view.points)
    inverse = np.asarray(np.linalg.inv(view.matrix), np.float64)
    return View(inverse, points, targets, view.error, view.support, pair)


def _weak(found: Sequence[Sequence[View]], limit: float) -> list[int]:
    """The pairs whose views all have less support than a limit."""
    return [pair for pair, views in enumerate(found) if max(map(SUPPORT, views)) < limit]


def _strongest(views: Sequence[View], pairs: Sequence[int], count: int) -> list[View]:
    """For each of these pairs, its `count` views with the highest support."""
    ordered = sorted(views, key=SUPPORT, reverse=True)
    return [view for pair in pairs for view in [v for v in ordered if v.pair == pair][:count]]


def fit_homography(view: View, side: int, settings: AlignmentSettings = DEFAULT_ALIGNMENT) -> Matrix | None:
    """The homography reference → query of a view's consistent points, by MAGSAC++.

    Args:
        view: the matches.
        side: side of the coarse images, in pixels.
        settings: thresholds.

    Returns:
        The `(3, 3)` matrix; `None` if there are too few points, or if it is mirrored or scales by too much.
    """
    import cv2

    for limit in settings.consistency:
        chosen = view.error < limit * side
        if chosen.sum() >= settings.min_points:
            break
    else:
        return None
    matches, threshold = (view.points[chosen], view.targets[chosen]), settings.inlier_distance * side
    step, inliers = cv2.findHomography(*matches, cv2.USAC_MAGSAC, threshold, maxIters=5000, confidence=0.999)
    if step is None or not np.isfinite(step).all():
        return None
    matrix = view.matrix @ step
    supported = view.points[chosen][inliers.ravel() > 0]
    if len(supported) < settings.min_points // 2 or abs(matrix[2, 2]) < 1e-9:
        return None
    matrix = np.asarray(matrix / matrix[2, 2])
    return matrix if _is_plausible(matrix, supported, settings) else None


def _is_plausible(matrix: Matrix, points: Array, settings: AlignmentSettings) -> bool:
    """Whether points are before the horizon of a homography that neither mirrors them nor scales by too much."""
    if (points @ matrix[2, :2] + 1 < NEAREST).any():
        return False
    slopes = jacobian(matrix, points)
    largest, smallest = np.median(np.linalg.svd(slopes, compute_uv=False), 0)
    low, high = settings.scale_range
    return bool(np.linalg.det(slopes).min() > 0 and smallest > low and largest < high)
