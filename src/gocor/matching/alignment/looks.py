"""Further looks at a pair.

One homography explains a plane, or a camera that rotates. In a scene with depth, what lies before or behind that plane
can move so far that it leaves the aligned images, and the network is unsure there. So the homography of the unexplained
part of the reference is searched for (`parts`), and the pair is matched again with the query warped by it, or as it is.
What is found replaces the result so far where the network is more confident of it.
"""

import logging
from typing import Any

import numpy as np
from torch import Tensor

from ...utils.arrays import Array
from ...utils.timing import stage
from ..second_look import mean_confidence, more_confident
from .aligned import match_aligned, predict_maps
from .parts import homography_of_part
from .search import UNALIGNED, AlignmentSearch
from .settings import AlignmentSettings

LOG = logging.getLogger("gocor.matching")


def look_again(
    search: AlignmentSearch, pair: int, there: Tensor, back: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """What is found after further looks at a pair, as long as parts of the reference are unexplained.

    Args:
        search: the finished search for an alignment of the pair's batch.
        pair: index of the pair.
        there: what was found so far, as `Prediction.maps`, `(1, 4, H, W)`.
        back: the same in the opposite direction, if it is asked for.
        **options: options of the first look.

    Returns:
        `there` and `back` after the looks.
    """
    matcher, settings = search.matcher, search.settings
    both, used = (matcher.reference[[pair]], matcher.query[[pair]]), [search.alignment(pair)]
    updates = min(options.get("updates") or settings.look_updates, settings.look_updates)
    options |= {"second_look": False, "updates": updates}
    related = search.best[pair].support >= settings.min_support  # images of different scenes have less
    share = float("inf")
    for _ in range(settings.looks if related else 0):
        part = unexplained(there, settings)
        before, share = share, float(part.mean())
        if share < settings.min_unexplained_share or share > before - settings.min_explained_more:
            break
        with stage("align"):
            matrix = homography_of_part(search, pair, part, used)
        if matrix is None:
            break
        used.append(matrix)
        LOG.info("matching again, for another part of the scene")
        if np.array_equal(matrix, UNALIGNED):
            again = predict_maps(matcher.network, *both, True, **options)
            returned = None if back is None else predict_maps(matcher.network, *both[::-1], True, **options)
        else:
            how = {"centres": _centre(part)[None], "backward": back is not None, "confidence": True, **options}
            found = match_aligned(matcher.network, *both, search.in_pixels(matrix)[None], settings=settings, **how)
            again, returned = found[0].maps, None if found[1] is None else found[1].maps
        there = more_confident(there, again)
        if back is not None and returned is not None:
            back = more_confident(back, returned)
    return there, back


def unexplained(maps: Tensor, settings: AlignmentSettings) -> Tensor:
    """1 where the network is unsure of what it found, as `Prediction.maps`, and 0 elsewhere: `(1, 1, H, W)`."""
    return (mean_confidence(maps) < settings.unsure_confidence).to(maps.dtype)


def _centre(part: Tensor) -> Array:
    """Mean position of the pixels of a part, `(2,)`."""
    rows, columns = np.nonzero(part[0, 0].cpu().numpy())
    return np.array([columns.mean(), rows.mean()])
