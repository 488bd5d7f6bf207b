"""Flow between images of a wide baseline: the query is aligned, matched, and the flow mapped back."""

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.network import MatchingNetwork
from ...utils.timing import stage
from ..certainty import Matched
from ..features import FeatureCache, Images
from ..planar import DEFAULT_PLANAR, PlanarSettings, prefer_homography
from .aligned import empty_maps, match_aligned, predict_maps
from .looks import look_again
from .search import AlignmentSearch
from .settings import DEFAULT_ALIGNMENT, AlignmentSettings

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
    looks_again = bool(options.get("second_look"))  # by the confidence, so it is predicted too
    cache = FeatureCache() if looks_again else None
    reference, query = Images.of(reference, cache), Images.of(query, cache)
    how = {"confidence": confidence or looks_again, **options}
    LOG.info("aligning")
    with stage("align"):
        search = AlignmentSearch(network, reference, query, alignment)
        search.run()
    there, back = (empty_maps(images.pixels, 4 if how["confidence"] else 2) for images in (reference, query))
    pairs = range(len(reference))
    close = [pair for pair in pairs if search.homography(pair) is None]
    unsure = [pair for pair in close if search.best[pair].support < alignment.support_without_turns]
    if close:
        LOG.info("matching")
        there[close] = predict_maps(network, reference[close], query[close], **how)
    if returning := close if backward else unsure:
        LOG.info("matching in the opposite direction")
        back[returning] = predict_maps(network, query[returning], reference[returning], **how)
    if unsure:
        LOG.info("aligning again, from the flow")
        with stage("align"):
            search.run_from_flow(unsure, there[:, :2], back[:, :2])
    matrices = {pair: matrix for pair in pairs if (matrix := search.homography(pair)) is not None}
    if aligned := list(matrices):
        LOG.info("matching the aligned images")
        both = reference[aligned], query[aligned], np.stack(list(matrices.values()))
        forward, returned = match_aligned(network, *both, backward=backward, settings=alignment, **how)
        there[aligned] = forward.maps
        if returned is not None:
            back[aligned] = returned.maps
    for pair in pairs if looks_again else ():
        again, back_again = look_again(search, pair, there[[pair]], back[[pair]] if backward else None, **options)
        there[[pair]] = again
        if back_again is not None:
            back[[pair]] = back_again
    LOG.info("fitting a homography to flat scenes")
    with stage("align"):
        flow, belief = prefer_homography(reference.pixels, query.pixels, there[:, :2], planar)
        flow_back = prefer_homography(query.pixels, reference.pixels, back[:, :2], planar).flow if backward else None
    return Matched(flow, flow_back, *(there[:, 2:].maximum(belief).split(1, 1) if confidence else (None, None)))
