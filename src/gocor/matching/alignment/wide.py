"""Flow between images of a wide baseline: the query is aligned, matched, and the flow mapped back."""

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.network import MatchingNetwork
from ...ops.homography import Matrix, depth, project_map, resizing
from ...ops.warp import flow_to_mapping, mapping_to_flow, pixel_grid, warp
from ...utils.timing import stage
from ..certainty import Matched
from ..features import FeatureCache, Images
from ..planar import DEFAULT_PLANAR, PlanarSettings, prefer_homography
from ..second_look import predict_twice
from .search import AlignmentSearch
from .settings import DEFAULT_ALIGNMENT, AlignmentSettings
from .warping import median_scale, warp_perspective

LOG = logging.getLogger("gocor.matching")


@torch.inference_mode()
def match_wide_baseline(
    network: MatchingNetwork,
    reference: Tensor | Images,
    query: Tensor | Images,
    *,
    backward: bool = True,
    confidence: bool = False,
    alignment: AlignmentSettings = DEFAULT_ALIGNMENT,
    planar: PlanarSettings = DEFAULT_PLANAR,
    **options: Any,
) -> Matched:
    """Flow between images that may be far apart: aligned first if that helps, planar where the scene is flat.

    Args:
        network: one that gives coarse matches, in evaluation mode.
        reference: RGB images `(B, 3, H, W)` in [0, 255]; as `Images`, what was computed from one of them is reused.
        query: RGB images `(B, 3, Hq, Wq)`, likewise.
        backward: compute the flow query → reference too.
        confidence: predict the confidence of the flow too; only for networks that learn it.
        alignment: settings of the alignment.
        planar: settings of the treatment of flat scenes.
        **options: `second_look` of `predict_twice`, and options of `MatchingNetwork.forward`.

    Returns:
        Flows and confidences. The backward flow is infinite beyond the horizon of the alignment.
    """
    reference, query = Images.of(reference), Images.of(query)
    LOG.info("aligning")
    with stage("align"):
        search = AlignmentSearch(network, reference, query, alignment)
        search.run()
    there, back = _empty(reference.pixels, 4 if confidence else 2), _empty(query.pixels, 2)
    pairs = range(len(reference))
    close = [pair for pair in pairs if search.homography(pair) is None]
    unsure = [pair for pair in close if search.best[pair].support < alignment.support_without_turns]
    if close:
        LOG.info("matching")
        there[close] = _predict(network, reference[close], query[close], confidence, options)
    if returning := close if backward else unsure:
        LOG.info("matching in the opposite direction")
        back[returning] = _predict(network, query[returning], reference[returning], False, options)
    if unsure:
        LOG.info("aligning again, from the flow")
        with stage("align"):
            search.run_from_flow(unsure, there[:, :2], back)
    matrices = {pair: matrix for pair in pairs if (matrix := search.homography(pair)) is not None}
    if aligned := list(matrices):
        LOG.info("matching the aligned images")
        both = reference[aligned], query[aligned], np.stack(list(matrices.values()))
        found = match_aligned(network, *both, backward=backward, confidence=confidence, settings=alignment, **options)
        there[aligned] = torch.cat([maps for maps in (found.forward, *found[2:]) if maps is not None], 1)
        if found.backward is not None:
            back[aligned] = found.backward
    LOG.info("fitting a homography to flat scenes")
    with stage("align"):
        forward, belief = prefer_homography(reference.pixels, query.pixels, there[:, :2], planar)
        returned = prefer_homography(query.pixels, reference.pixels, back, planar).flow if backward else None
    return Matched(forward, returned, *(there[:, 2:].maximum(belief).split(1, 1) if confidence else (None, None)))


@torch.inference_mode()
def match_aligned(
    network: MatchingNetwork,
    reference: Tensor | Images,
    query: Tensor | Images,
    matrices: Matrix,
    *,
    backward: bool = True,
    confidence: bool = False,
    settings: AlignmentSettings = DEFAULT_ALIGNMENT,
    **options: Any,
) -> Matched:
    """Flow between references and queries that are first warped by homographies `(B, 3, 3)`, reference → query pixel.

    Arguments and results are those of `match_wide_baseline`.
    """
    reference, queries = Images.of(reference), Images.of(query).pixels
    sizes = [_warped_size(reference.size, matrix, settings, options.get("max_size")) for matrix in matrices]
    there, back = _empty(reference.pixels, 4 if confidence else 2), _empty(queries, 2)
    for size in dict.fromkeys(sizes):
        chosen = [i for i, other in enumerate(sizes) if other == size]
        to_query = matrices[chosen] @ np.linalg.inv(resizing(reference.size, size))
        views = zip(queries[chosen].split(1), to_query, strict=True)
        pixels = torch.cat([warp_perspective(image, matrix, size) for image, matrix in views])
        warped = Images.of(pixels, None if reference.cache is None else FeatureCache())  # for both directions
        found = _predict(network, reference[chosen], warped, confidence, options)
        mapping = project_map(to_query, flow_to_mapping(found[:, :2]))
        there[chosen, :2] = mapping_to_flow(_clamped(mapping, queries, settings.max_outside))
        there[chosen, 2:] = found[:, 2:]
        if backward:
            back[chosen] = _flow_back(_predict(network, warped, reference[chosen], False, options), queries, to_query)
    return Matched(
        there[:, :2], back if backward else None, *(there[:, 2:].split(1, 1) if confidence else (None, None))
    )


def _empty(images: Tensor, channels: int) -> Tensor:
    return images.new_zeros(len(images), channels, *images.shape[2:])


def _predict(
    network: MatchingNetwork, reference: Images, query: Images, confidence: bool, options: dict[str, Any]
) -> Tensor:
    """Flow `(B, 2, H, W)`, or flow, confidence and visibility `(B, 4, H, W)`."""
    if len(reference) > 1 and network.graphs is not None:  # each batch size would need its own graph
        single = [_predict(network, reference[[i]], query[[i]], confidence, options) for i in range(len(reference))]
        return torch.cat(single)
    found = predict_twice(network, reference, query, confidence=confidence, **options)
    return torch.cat([maps for maps in found if maps is not None], 1) if confidence else found.flow


def _clamped(mapping: Tensor, query: Tensor, outside: float) -> Tensor:
    """Move targets far outside the query closer to it, because a homography has no meaning there."""
    sides = query.shape[3], query.shape[2]
    limits = zip(mapping.split(1, 1), sides, strict=True)
    return torch.cat([at.clamp(-outside * side, (1 + outside) * side) for at, side in limits], 1)


def _flow_back(flow: Tensor, query: Tensor, to_query: Matrix) -> Tensor:
    """Flow of warped queries → flow of the queries themselves, infinite beyond the horizon."""
    to_warped = np.asarray(np.linalg.inv(to_query), np.float64)
    grid = pixel_grid(query.shape[2], query.shape[3], device=query.device).expand(len(flow), -1, -1, -1)
    at = project_map(to_warped, grid)
    back = at + warp(flow, at - grid, padding="border") - grid
    return torch.where(depth(to_warped, grid) > 0, back, torch.inf)


def _warped_size(
    reference: tuple[int, int], matrix: Matrix, settings: AlignmentSettings, max_size: int | None
) -> tuple[int, int]:
    """Size of the warped query: the reference's, or twice as large if the query shows the scene from closer by."""
    height, width = reference
    centre = np.array([[(width - 1) / 2, (height - 1) / 2]])
    factor = 2.0 if median_scale(matrix, centre) > settings.closeup_scale else 1.0
    if max_size is not None:  # The network would shrink a larger image.
        factor = min(factor, max_size / max(height, width))
    return max(1, round(factor * height)), max(1, round(factor * width))
