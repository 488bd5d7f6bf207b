"""Matching of references with queries that are first warped by known homographies."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.network import MatchingNetwork
from ...models.outputs import Prediction
from ...ops.homography import Matrix, depth, project_map, resizing
from ...ops.warp import flow_to_mapping, inside_mask, mapping_to_flow, pixel_grid, warp
from ...utils.arrays import Array
from ..features import FeatureCache, Images
from ..second_look import predict_twice
from .settings import DEFAULT_ALIGNMENT, AlignmentSettings
from .warping import median_scale, warp_perspective


@torch.inference_mode()
def match_aligned(
    network: MatchingNetwork,
    reference: Tensor | Images,
    query: Tensor | Images,
    matrices: Matrix,
    *,
    centres: Array | None = None,
    backward: bool = True,
    confidence: bool = False,
    settings: AlignmentSettings = DEFAULT_ALIGNMENT,
    **options: Any,
) -> tuple[Prediction, Prediction | None]:
    """What is found between references and queries that are first warped by homographies.

    Args:
        network: see `match_wide_baseline`.
        reference: likewise.
        query: likewise.
        matrices: homographies reference → query pixel, `(B, 3, 3)`.
        centres: pixels of the references that matter most, `(B, 2)`; the scale of a homography is measured there.
            `None` for the centres of the images.
        backward: whether the opposite direction is matched too.
        confidence: predict the confidence too; only for networks that learn it.
        settings: settings of the alignment.
        **options: see `match_wide_baseline`.

    Returns:
        What is found from the reference to the query, and in the opposite direction if asked for.
    """
    reference, queries = Images.of(reference), Images.of(query).pixels
    height, width = reference.size
    if centres is None:
        centres = np.broadcast_to([(width - 1) / 2, (height - 1) / 2], (len(matrices), 2))
    most = options.get("max_size")
    sizes = [_warped_size(reference.size, *at, settings, most) for at in zip(matrices, centres, strict=True)]
    there, back = (empty_maps(images, 4 if confidence else 2) for images in (reference.pixels, queries))
    for size in dict.fromkeys(sizes):
        chosen = [i for i, other in enumerate(sizes) if other == size]
        to_query = matrices[chosen] @ np.linalg.inv(resizing(reference.size, size))
        views = zip(queries[chosen].split(1), to_query, strict=True)
        pixels = torch.cat([warp_perspective(image, matrix, size) for image, matrix in views])
        warped = Images.of(pixels, None if reference.cache is None else FeatureCache())  # for both directions
        found = predict_maps(network, reference[chosen], warped, confidence, **options)
        mapping = project_map(to_query, flow_to_mapping(found[:, :2]))
        there[chosen, :2] = mapping_to_flow(_clamped(mapping, queries, settings.max_outside))
        there[chosen, 2:] = found[:, 2:]
        if backward:
            returned = predict_maps(network, warped, reference[chosen], confidence, **options)
            back[chosen] = _maps_back(returned, queries, to_query)
    return Prediction.of_maps(there), Prediction.of_maps(back) if backward else None


def predict_maps(
    network: MatchingNetwork, reference: Images, query: Images, confidence: bool, **options: Any
) -> Tensor:
    """`Prediction.maps` of what `predict_twice` finds."""
    if len(reference) > 1 and network.graphs is not None:  # each batch size would need its own graph
        pairs = [(reference[[i]], query[[i]]) for i in range(len(reference))]
        return torch.cat([predict_maps(network, *pair, confidence, **options) for pair in pairs])
    return predict_twice(network, reference, query, confidence=confidence, **options).maps


def empty_maps(images: Tensor, channels: int) -> Tensor:
    """Zeros of the size of images `(B, 3, H, W)`, with a number of channels."""
    return images.new_zeros(len(images), channels, *images.shape[2:])


def _clamped(mapping: Tensor, query: Tensor, outside: float) -> Tensor:
    """Move targets far outside the query closer to it, because a homography has no meaning there."""
    sides = query.shape[3], query.shape[2]
    limits = zip(mapping.split(1, 1), sides, strict=True)
    return torch.cat([at.clamp(-outside * side, (1 + outside) * side) for at, side in limits], 1)


def _maps_back(maps: Tensor, query: Tensor, to_query: Matrix) -> Tensor:
    """Maps of warped queries → maps of the queries themselves; flow is infinite beyond the horizon.

    Confidence is 0 there, and where a query is outside its warped image.
    """
    to_warped = np.asarray(np.linalg.inv(to_query), np.float64)
    grid = pixel_grid(query.shape[2], query.shape[3], device=query.device).expand(len(maps), -1, -1, -1)
    at = project_map(to_warped, grid)
    found = warp(maps, at - grid, padding="border")
    flow = torch.where(depth(to_warped, grid) > 0, at + found[:, :2] - grid, torch.inf)
    return torch.cat([flow, found[:, 2:] * (inside_mask(at - grid, maps.shape[2:]) & flow.isfinite().all(1, True))], 1)


def _warped_size(
    reference: tuple[int, int], matrix: Matrix, centre: Array, settings: AlignmentSettings, max_size: int | None
) -> tuple[int, int]:
    """Size of the warped query: the reference's, or twice as large if the query shows the scene from closer by."""
    height, width = reference
    factor = 2.0 if median_scale(matrix, centre[None]) > settings.closeup_scale else 1.0
    if max_size is not None:  # The network would shrink a larger image.
        factor = min(factor, max_size / max(height, width))
    return max(1, round(factor * height)), max(1, round(factor * width))
