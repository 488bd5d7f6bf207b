"""Anchors, the shared keypoints of an image, and where a dense flow finds them in another image.

A dense flow gives each pair its own matches, so that two pairs with a common image share no keypoint in it. COLMAP
needs shared keypoints: a track is a set of matches that meet in them. Each image therefore has anchors, corners that
are the same in all of its pairs. Each pair finds the anchors of both images in the other one, with subpixel accuracy:
those of the reference by the flow, those of the query by its inverse.
"""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..matching.result import MatchResult
from ..ops.sampling import is_inside, nearest_pixels, sample_flow
from ..ops.warp import inside_mask
from ..utils.arrays import Array, FlowField, Mask, Picture

CORNER_WINDOW = 5  # pixels: side of the window in which the gradients of a corner are summed
MIN_CORNER = 1e-3  # response of the weakest corner, relative to the strongest
REACH = 2  # pixels around an anchor of the query in which the target of a reference pixel is looked for
MAX_INVERSE_ERROR = 0.5  # pixels between an anchor of the query and the flow from where it was found

Index = NDArray[np.int32]


class Transfer(NamedTuple):
    """Anchors of one image that were found in another.

    Attributes:
        anchors: their indices, `(N,)` int32.
        points: where they were found, `(N, 2)`, x first, in pixels of the other image.
        confidence: confidence of the flow there, `(N,)`.
    """

    anchors: Index
    points: Array
    confidence: Array


def find_anchors(picture: Picture, count: int) -> NDArray[np.int32]:
    """The strongest corners of a picture, each the strongest of its neighbourhood: `(N, 2)`, x first.

    Args:
        picture: RGB `(H, W, 3)`.
        count: number of corners, at most. It determines the distance between them.
    """
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    response = cv2.cornerMinEigenVal(grey, CORNER_WINDOW)
    side = int(np.ceil(np.sqrt(grey.size / count))) | 1
    strongest = cv2.dilate(response, np.ones((side, side), np.uint8))
    y, x = np.nonzero((response == strongest) & (response > MIN_CORNER * response.max()))
    order = np.argsort(-response[y, x], kind="stable")[:count]
    return np.stack([x[order], y[order]], 1).astype(np.int32)


def transfer_anchors(
    result: MatchResult, anchors: NDArray[np.int32], query_anchors: NDArray[np.int32], *, min_confidence: float
) -> tuple[Transfer, Transfer]:
    """The reference's anchors in the query, and the query's anchors in the reference.

    Args:
        result: dense matches of the pair.
        anchors: anchors of the reference, `(N, 2)`.
        query_anchors: anchors of the query, `(M, 2)`.
        min_confidence: lowest confidence of the flow.
    """
    flow, confidence = result.flow.permute(1, 2, 0).numpy(), result.confidence.numpy()  # (H, W, 2), (H, W)
    inside = inside_mask(result.flow[None], result.query.shape[:2])[0, 0].numpy()
    matched = inside & ~result.occlusion.numpy() & (confidence >= min_confidence)
    x, y = anchors.T
    kept = matched[y, x]
    points = anchors[kept] + flow[y[kept], x[kept]].astype(np.float64)
    forward = Transfer(np.flatnonzero(kept).astype(np.int32), points, confidence[y[kept], x[kept]].astype(np.float64))
    return forward, _invert(flow, confidence, matched, query_anchors, result.query.shape[:2])


def _invert(
    flow: FlowField, confidence: NDArray[np.float32], matched: Mask, anchors: Index, size: tuple[int, ...]
) -> Transfer:
    """The query's anchors in the reference: the positions from which the flow leads to them."""
    y, x = np.nonzero(matched)
    order = np.argsort(confidence[y, x], kind="stable")  # of several pixels with one target, the most confident stays
    y, x = y[order], x[order]
    targets = np.asarray(np.stack([x, y], 1) + flow[y, x], np.float64)
    nearest = nearest_points(targets, anchors.astype(np.float64), size, REACH)
    found = np.flatnonzero(nearest >= 0)
    sources = np.stack([x, y], 1)[nearest[found]].astype(np.float64)
    away = anchors[found] - targets[nearest[found]]
    points = sources + np.linalg.solve(_slopes(flow, sources), away[:, :, None])[:, :, 0]
    error = np.linalg.norm(points + sample_flow(flow, points) - anchors[found], axis=1)
    kept = (error <= MAX_INVERSE_ERROR) & is_inside(points, matched.shape)
    columns, rows = nearest_pixels(points, matched.shape)
    kept &= matched[rows, columns]
    values = confidence[sources[kept, 1].astype(int), sources[kept, 0].astype(int)]
    return Transfer(found[kept].astype(np.int32), points[kept], values.astype(np.float64))


def nearest_points(points: Array, wanted: Array, size: tuple[int, ...], reach: int) -> NDArray[np.intp]:
    """For each wanted position `(M, 2)`, the index of the nearest of points `(N, 2)`, or -1 if none is near.

    Of several points that are nearest to one pixel, only the last is found.

    Args:
        points: inside an image.
        wanted: inside the same image.
        size: height and width of the image.
        reach: pixels around the wanted one in which points are looked for.
    """
    if not len(points):
        return np.full(len(wanted), -1, np.intp)
    height, width = size
    raster = np.full((height + 2 * reach, width + 2 * reach), -1, np.intp)
    columns, rows = nearest_pixels(points, size)
    raster[rows + reach, columns + reach] = np.arange(len(points))
    columns, rows = nearest_pixels(wanted, size)
    steps = np.mgrid[: 2 * reach + 1, : 2 * reach + 1].reshape(2, -1)
    candidates = raster[rows[:, None] + steps[0], columns[:, None] + steps[1]]  # (M, (2·reach + 1)²)
    distances = np.linalg.norm(points[candidates] - wanted[:, None], axis=2)
    best = np.where(candidates < 0, np.inf, distances).argmin(1)
    return candidates[np.arange(len(wanted)), best]


def _slopes(flow: FlowField, pixels: Array) -> Array:
    """Derivatives `(N, 2, 2)` of pixel + flow at pixels, by differences; the identity where they are singular."""
    columns = [(sample_flow(flow, pixels + step) - sample_flow(flow, pixels - step)) / 2 for step in ((1, 0), (0, 1))]
    slopes = np.eye(2) + np.stack(columns, 2)
    singular = np.abs(np.linalg.det(slopes)) < 0.1
    slopes[singular] = np.eye(2)
    return np.asarray(slopes)
