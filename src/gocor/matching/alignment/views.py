"""Coarse matches between references and their queries seen through homographies."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...models.network import MatchingNetwork
from ...models.resizing import resize_image
from ...ops.homography import Matrix, depth, project_map, resizing
from ...ops.warp import pixel_grid, warp
from ...utils.arrays import Array
from ..features import Images, Tensors, encode
from .settings import AlignmentSettings
from .warping import warp_perspective

Start = tuple[int, Matrix]
"""Index of a pair, and a homography by which its query is warped, in coarse pixels."""


class View(NamedTuple):
    """Coarse matches of one reference with its query warped by a homography; all in pixels of the coarse images.

    Attributes:
        matrix: the homography `(3, 3)`, reference → query.
        points: pixels of the reference, `(N, 2)`.
        targets: their matches in the warped query, `(N, 2)`.
        error: forward–backward error of each match, infinite outside the query, `(N,)`.
        support: see `AlignmentSettings`.
        pair: index of the pair in its batch.
        cells: support of each cell of the reference, whose mean is `support`, `(h, w)`; `None` if it is not known.
    """

    matrix: Matrix
    points: Array
    targets: Array
    error: Array
    support: float
    pair: int = 0
    cells: Array | None = None


class CoarseMatcher:
    """Matches the pairs of a batch by a network's coarse levels, many views of the queries at once.

    Args:
        network: one that gives coarse matches.
        reference: RGB images `(B, 3, H, W)` in [0, 255].
        query: RGB images `(B, 3, Hq, Wq)`.
        settings: settings of the alignment.

    Attributes:
        side: side of the coarse images.
        to_coarse: homography from the references' pixels to those of the coarse images.
        query_to_coarse: the same for the queries.
        seen: all views so far.
    """

    def __init__(self, network: MatchingNetwork, reference: Images, query: Images, settings: AlignmentSettings) -> None:
        assert network.coarse_side is not None
        self.network, self.reference, self.query, self.settings = network, reference, query, settings
        self.side = network.coarse_side
        self.seen: list[View] = []
        size = self.side, self.side
        self.to_coarse, self.query_to_coarse = (resizing(images.size, size) for images in (reference, query))
        (self.features,) = encode(
            (reference,),
            "coarse",
            lambda image: resize_image(image, size, published=False),
            network.coarse_features,
        )
        self.descriptors = _descriptors(self.features[-1])  # (B, D, h, w)
        self.ambiguity = _ambiguity(self.descriptors, settings)  # (B, 1, h, w)

    def match(self, starts: Sequence[Start]) -> list[View]:
        """Match pairs with their queries warped, see `Start`."""
        return [view for chunk in self._chunks(starts) for view in self._match(chunk, self._warped_features(chunk))]

    def match_unaligned(self) -> list[View]:
        """Match all pairs with their queries as they are."""
        chunks = self._chunks([(pair, np.eye(3)) for pair in range(len(self.query))])
        return [view for chunk in chunks for view in self._match(chunk, self._unaligned_features(chunk))]

    def shift(self, x: float, y: float) -> Matrix:
        """Translation by fractions of the side, in coarse pixels."""
        return np.array([[1, 0, x * self.side], [0, 1, y * self.side], [0, 0, 1]])

    def rotation(self, degrees: float) -> Matrix:
        """Rotation about the centres of both images, at their own aspect ratios, in coarse pixels."""
        return self.about_centres(rotation_matrix(degrees))

    def about_centres(self, linear: Matrix, offset: tuple[float, float] = (0, 0)) -> Matrix:
        """A linear map about the centres of both images, at their own aspect ratios, in coarse pixels.

        Args:
            linear: `(2, 2)`, of displacements in images of equal area.
            offset: added to the query's centre, in fractions of its width and height.
        """
        (height, width), (query_height, query_width) = self.reference.size, self.query.size
        scale = math.sqrt(query_height * query_width / (height * width))
        from_centre = np.array([[1, 0, -(width - 1) / 2], [0, 1, -(height - 1) / 2], [0, 0, 1]])
        mapped = np.eye(3)
        mapped[:2, :2] = scale * linear
        mapped[:2, 2] = (
            (query_width - 1) / 2 + offset[0] * query_width,
            (query_height - 1) / 2 + offset[1] * query_height,
        )
        return np.asarray(self.query_to_coarse @ mapped @ from_centre @ np.linalg.inv(self.to_coarse))

    def tilted(self) -> list[Matrix]:
        """Starts that stretch the query in one direction, as a slanted view of the scene does."""
        turns = [rotation_matrix(degrees) for degrees in self.settings.tilt_directions]
        return [self.about_centres(t @ np.diag([f, 1.0]) @ t.T) for f, t in product(self.settings.tilts, turns)]

    def enlarged(self) -> list[Matrix]:
        """Starts that enlarge parts of the query, for a query that shows much more than the reference."""
        places = (-self.settings.overview_offset, 0.0, self.settings.overview_offset)
        scale = self.settings.overview_scale * np.eye(2)
        return [self.about_centres(scale, (x, y)) for x, y in product(places, places)]

    def _chunks(self, starts: Sequence[Start]) -> Iterator[Sequence[Start]]:
        on_cpu = self.query.pixels.device.type == "cpu"
        size = self.settings.views_per_batch_cpu if on_cpu else self.settings.views_per_batch
        return (starts[first : first + size] for first in range(0, len(starts), size))

    def _warped_features(self, starts: Sequence[Start]) -> Tensors:
        """Features of warped queries."""
        return self.network.coarse_features(
            torch.cat([self._warp(self.query.pixels[pair : pair + 1], matrix) for pair, matrix in starts])
        )

    def _unaligned_features(self, starts: Sequence[Start]) -> Tensors:
        """Features of queries that are not warped, computed once for all pairs of a query."""
        chosen = self.query[[pair for pair, _ in starts]]
        (features,) = encode(
            (chosen,), "coarse query", lambda image: self._warp(image, np.eye(3)), self.network.coarse_features
        )
        return features

    def _warp(self, query: Tensor, matrix: Matrix) -> Tensor:
        """A coarse image of the query, seen through a homography of coarse pixels."""
        return warp_perspective(query, np.linalg.inv(self.query_to_coarse) @ matrix, (self.side, self.side))

    def _match(self, starts: Sequence[Start], features: Tensors) -> list[View]:
        pairs, matrices = [pair for pair, _ in starts], np.stack([matrix for _, matrix in starts])
        both = [(level[pairs], other) for level, other in zip(self.features, features, strict=True)]
        flows = self.network.coarse_flow(  # forward, then backward
            tuple(torch.cat([first, second]) for first, second in both),
            tuple(torch.cat([second, first]) for first, second in both),
        )
        forward, backward = flows.float().chunk(2)  # (V, 2, h, w)
        grid = pixel_grid(forward.shape[2], forward.shape[3], device=forward.device)
        points = (grid + 0.5) * (self.side / forward.shape[3]) - 0.5  # centres of the cells
        targets = points + forward
        error = self._consistency_error(forward, backward, targets, matrices)
        cells = self._cells(pairs, features[-1], forward, error)  # (V, 1, h′, w′)
        # The host waits for the device once for all views.
        maps = torch.cat([points.expand_as(targets), targets, error], 1).flatten(2)
        values = torch.cat([maps.flatten(1), cells.flatten(1)], 1).double().cpu().numpy()
        views = []
        for pair, matrix, found in zip(pairs, matrices, values, strict=True):
            x, y, to_x, to_y, distance = found[: 5 * maps.shape[2]].reshape(5, -1)
            supported = found[5 * maps.shape[2] :].reshape(cells.shape[2:])
            points_and_targets = np.stack([x, y], 1), np.stack([to_x, to_y], 1)
            views.append(View(matrix, *points_and_targets, distance, float(supported.mean()), pair, supported))
        self.seen += views
        return views

    def _consistency_error(self, forward: Tensor, backward: Tensor, targets: Tensor, matrices: Matrix) -> Tensor:
        """Forward–backward error `(V, 1, h, w)` in coarse pixels, infinite where a match is outside its query."""
        in_cells = forward * (forward.shape[3] / self.side)
        error = torch.linalg.vector_norm(forward + warp(backward, in_cells, padding="border"), dim=1, keepdim=True)
        mapped = project_map(matrices, targets)
        last = self.side - 1
        inside = ((targets >= 0) & (targets <= last) & (mapped >= 0) & (mapped <= last)).all(1, keepdim=True)
        inside = inside & (depth(matrices, targets) > 0)
        return torch.where(inside & error.isfinite(), error, torch.inf)

    def _cells(self, pairs: list[int], features: Tensor, forward: Tensor, error: Tensor) -> Tensor:
        """Support of each cell of the views, `(V, 1, h, w)`, see `AlignmentSettings`."""
        size = features.shape[2], features.shape[3]
        in_cells = F.adaptive_avg_pool2d(forward, size) * (size[1] / self.side)
        matched = F.normalize(warp(_descriptors(features), in_cells, padding="border"), dim=1)
        similarity = (self.descriptors[pairs] * matched).sum(1, keepdim=True)
        consistency = torch.exp(-error / (self.settings.consistency[0] * self.side))
        margin = (similarity - self.ambiguity[pairs]).clamp(min=0)
        return F.adaptive_avg_pool2d(consistency, size) * margin


def rotation_matrix(degrees: float) -> Matrix:
    """Rotation `(2, 2)` from x towards y."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cos, -sin], [sin, cos]])


def _descriptors(features: Tensor) -> Tensor:
    """Features `(B, D, h, w)` without their spatial mean, of unit length."""
    features = features.float()
    return F.normalize(features - features.mean((2, 3), keepdim=True), dim=1)


def _ambiguity(descriptors: Tensor, settings: AlignmentSettings) -> Tensor:
    """Ambiguity of each feature, `(B, 1, h, w)`: its `ambiguity_rank`-th highest similarity to features elsewhere."""
    flat = descriptors.flatten(2)  # (B, D, h·w)
    similarity = flat.mT @ flat
    cell = pixel_grid(descriptors.shape[2], descriptors.shape[3], device=descriptors.device).flatten(2)[0]
    near = ((cell[:, :, None] - cell[:, None]).abs() <= settings.ambiguity_radius).all(0)
    rank = min(settings.ambiguity_rank, flat.shape[2])
    return similarity.masked_fill(near, -1.0).topk(rank, 2).values[..., -1].unflatten(1, descriptors.shape[2:])[:, None]
