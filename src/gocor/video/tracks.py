"""Points followed through a clip by chaining the flows between its frames."""

from collections import deque
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..matching.result import MatchResult
from ..ops.sampling import is_inside, nearest_pixels, sample_flow
from ..utils.arrays import Array, Mask, Picture
from ..utils.checks import check_count

MIN_CONFIDENCE = 0.5  # least confidence of the flow at a point: below it a track ends, and no track begins
TRAIL = 16  # frames that a trail shows
FAR = 1e5  # pixels: points beyond, as after a homography, are drawn there
GOLDEN = 0.618034  # turns of the hue from one track to the next


class Points(NamedTuple):
    """Points of one frame.

    Attributes:
        ids: number of each track, `(N,)`.
        places: `(N, 2)`, x then y, in pixels.
    """

    ids: NDArray[np.int64]
    places: Array


class Tracker:
    """Follows points from frame to frame.

    The image is divided into about `count` square cells. A cell without a point gets a new one in its middle, where the
    flow is most confident, unless a point of another cell is near. A track ends where its point is occluded or leaves
    the image, or where the flow is not confident.

    Args:
        count: number of points in a frame, at most.
        points: points of the frame to continue from.
        next_id: number of the next track that begins.
    """

    def __init__(self, count: int, points: Points | None = None, next_id: int = 0) -> None:
        check_count("tracks", count, minimum=1)
        self.count = count
        self.points = points or Points(np.zeros(0, np.int64), np.zeros((0, 2)))
        self.next_id = next_id

    def begin(self, result: MatchResult) -> Points:
        """Begin tracks in empty cells of the result's reference; returns all points of this frame."""
        height, width = result.confidence.shape
        side = max(1, int(np.ceil(np.sqrt(height * width / self.count))))  # cells of `MatchResult.matches`
        inner = np.outer(*((np.abs((np.arange(n) % side + 0.5) / side - 0.5) <= 0.25) for n in (height, width)))
        middle = replace(result, confidence=result.confidence.where(torch.from_numpy(inner), -1))
        candidates = middle.matches(self.count, MIN_CONFIDENCE)[:, :2].astype(np.float64)
        candidates = candidates[_trusted(result, candidates)]
        taken = self.points.places
        columns = -(-width // side)
        empty = ~np.isin(_cells(candidates, side, columns), _cells(taken, side, columns))
        new = candidates[empty & (_distances(candidates, taken, (height, width)) >= side / 2)]
        new = new[: max(0, self.count - len(taken))]
        ids = np.arange(self.next_id, self.next_id + len(new))
        self.next_id += len(new)
        self.points = Points(np.concatenate([self.points.ids, ids]), np.concatenate([self.points.places, new]))
        return self.points

    def advance(self, result: MatchResult) -> Points:
        """Move the points from the result's reference to its query; returns those whose tracks continue."""
        ids, places = self.points
        keep = _trusted(result, places)
        ids, places = ids[keep], places[keep]
        moved = places + sample_flow(result.flow.permute(1, 2, 0).numpy(), places)
        inside = is_inside(moved, result.query.shape)
        self.points = Points(ids[inside], moved[inside])
        return self.points


class Trails:
    """The last places of tracks, to draw them."""

    def __init__(self) -> None:
        self.frames: deque[dict[int, tuple[float, float]]] = deque(maxlen=TRAIL)

    def add(self, points: Points) -> None:
        """Add the points of the next frame."""
        self.frames.append({int(name): (float(x), float(y)) for name, (x, y) in zip(*points, strict=True)})

    def draw(self, picture: Picture) -> Picture:
        """Draw a line through the last places of each track of the last frame, and a dot where it is now."""
        import cv2

        drawn = picture.copy()
        thickness = max(1, round(min(picture.shape[:2]) / 400))
        for name in self.frames[-1]:
            path = [frame[name] for frame in self.frames if name in frame]
            colour = _colour(name)
            line = np.rint(16 * np.clip(path, -FAR, FAR)).astype(np.int32)  # fixed point, 4 fraction bits
            cv2.polylines(drawn, [line[:, None]], False, colour, thickness, cv2.LINE_AA, 4)
            centre = (int(line[-1, 0]), int(line[-1, 1]))
            cv2.circle(drawn, centre, 32 * thickness, colour, -1, cv2.LINE_AA, 4)
        return drawn


def _trusted(result: MatchResult, places: Array) -> Mask:
    """Whether the flow at places `(N, 2)` is confident, and the query shows them."""
    x, y = nearest_pixels(places, result.confidence.shape)
    return np.asarray((result.confidence.numpy()[y, x] >= MIN_CONFIDENCE) & ~result.occlusion.numpy()[y, x])


def _distances(places: Array, taken: Array, size: tuple[int, int]) -> NDArray[np.float32]:
    """Distance of each place `(N, 2)` from the nearest of the taken ones `(M, 2)`, about, in an image of a size."""
    import cv2

    free = np.ones(size, np.uint8)
    column, row = np.rint(taken).astype(int).T
    free[row, column] = 0
    x, y = np.rint(places).astype(int).T
    return np.asarray(cv2.distanceTransform(free, cv2.DIST_L2, 5)[y, x], np.float32)


def _cells(places: Array, side: int, columns: int) -> NDArray[np.int64]:
    column, row = (np.rint(places) // side).astype(np.int64).T
    return np.asarray(row * columns + column)


def _colour(name: int) -> tuple[int, int, int]:
    """A bright colour, far from that of the tracks before."""
    sector, rest = divmod(6 * (name * GOLDEN % 1), 1)
    up, down = round(64 + 191 * rest), round(255 - 191 * rest)
    return ((255, up, 64), (down, 255, 64), (64, 255, up), (64, down, 255), (up, 64, 255), (255, 64, down))[int(sector)]
