"""The homography of a part of the reference, found from the coarse matches of that part."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from ...ops.homography import Matrix, project
from ...utils.arrays import Array, Mask
from .search import SUPPORT, AlignmentSearch, refine
from .settings import AlignmentSettings
from .views import CoarseMatcher, Start, View


class PartMatcher:
    """A coarse matcher whose views only count within a part of the reference of one pair.

    Args:
        matcher: the matcher.
        part: the part, 1 or 0 for each pixel of the reference, `(1, 1, H, W)`.
    """

    def __init__(self, matcher: CoarseMatcher, part: Tensor) -> None:
        self.matcher, self.part, self.side = matcher, part, matcher.side
        self.settings: AlignmentSettings = replace(matcher.settings, min_points=matcher.settings.min_part_points)

    def match(self, starts: Sequence[Start]) -> list[View]:
        """See `CoarseMatcher.match`."""
        return [self.within(view) for view in self.matcher.match(starts)]

    def within(self, view: View) -> View:
        """A view, of which only the points and the support of the part are left."""
        assert view.cells is not None
        cells = view.cells * self._share(len(view.cells))
        return view._replace(
            error=np.where(self._holds(view), view.error, np.inf), cells=cells, support=float(cells.mean())
        )

    def points(self, view: View) -> Array:
        """The points of a view that lie in the part, `(N, 2)`."""
        return view.points[self._holds(view)]

    def _holds(self, view: View) -> Mask:
        """Which points of a view lie in the part. Views have a square grid of points."""
        return self._share(math.isqrt(len(view.points))).ravel() > 0.5

    def _share(self, side: int) -> Array:
        """Share of each cell of a square grid that belongs to the part."""
        return np.asarray(F.adaptive_avg_pool2d(self.part, side)[0, 0].double().cpu().numpy())


def homography_of_part(search: AlignmentSearch, pair: int, part: Tensor, used: Sequence[Matrix]) -> Matrix | None:
    """The homography that explains most of a part of the reference.

    Args:
        search: the finished search for an alignment of the pair's batch.
        pair: index of the pair.
        part: see `PartMatcher`.
        used: homographies, in coarse pixels, by which the query was warped already.

    Returns:
        The homography, in coarse pixels; `UNALIGNED` for the images as they are. `None` if all that is found was used
        already, or explains much less of the part than those that were used.
    """
    matcher, settings = search.matcher, search.settings
    focused = PartMatcher(matcher, part)
    known = [focused.within(view) for view in matcher.seen if view.pair == pair]
    points = focused.points(known[0])
    if not len(points):
        return None

    def is_used(view: View) -> bool:
        """Whether one of the used homographies moves the part to nearly the same place."""
        targets = project(view.matrix, points)
        distances = [np.median(np.linalg.norm(targets - project(matrix, points), axis=1)) for matrix in used]
        return bool(min(distances) < settings.part_distance * matcher.side)

    if len(used) == 1:  # later looks know these views
        known += focused.match([(pair, matcher.shift(x, y)) for x, y in settings.part_shifts])
    starts = sorted(known, key=SUPPORT, reverse=True)[: settings.part_starts]
    views = [*refine(focused, starts, settings.part_rounds), focused.within(search.unaligned[pair])]
    found = [view for view in views if not is_used(view)]
    if not found:
        return None
    best, limit = max(found, key=SUPPORT), max((view.support for view in known if is_used(view)), default=0.0)
    return best.matrix if best.support > settings.min_part_support * limit else None
