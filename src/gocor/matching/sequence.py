"""Match each image of a sequence with the next one."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import torch

from ..models.evaluation_view import in_evaluation_mode
from ..models.network import MatchingNetwork
from ..models.outputs import ImageFeatures
from ..utils.arrays import Picture
from .api import match_stream, to_results
from .certainty import Matched
from .images import to_batch
from .options import DEFAULT_OPTIONS, MatchOptions
from .result import MatchResult


def match_sequence(
    pictures: Iterable[Picture], network: MatchingNetwork, options: MatchOptions = DEFAULT_OPTIONS
) -> Iterator[MatchResult]:
    """Match every picture with its successor. Two pictures are held at a time.

    A picture is the query of one pair and the reference of the next. If the network can match features that were
    computed before (`MatchingNetwork.reuses_features`), it computes the features of each picture once.

    Args:
        pictures: RGB `(H, W, 3)` uint8, all of one size.
        network: on any device.
        options: how to match. Alignment, and the CUDA graphs of `MatchingNetwork.accelerate`, work on whole pairs, so
            that features are computed twice.

    Yields:
        One result for each pair, one fewer than there are pictures.
    """
    resolved = options.resolve(network)
    if not network.reuses_features or resolved.align or network.graphs is not None:
        for pair in pairwise(pictures):
            yield from match_stream([pair], network, options, batch_size=1)
        return
    before: tuple[Picture, ImageFeatures] | None = None
    for picture in pictures:
        now = picture, _features(picture, network, resolved)
        if before is not None:
            found = _match(before[1], now[1], network, resolved)
            yield from to_results(network, [before[0]], [picture], found, resolved)
        before = now


@torch.inference_mode()
def _features(picture: Picture, network: MatchingNetwork, options: MatchOptions) -> ImageFeatures:
    images = to_batch([picture], network)
    return in_evaluation_mode(network).features(images, min_size=options.min_size, max_size=options.max_size)


@torch.inference_mode()
def _match(reference: ImageFeatures, query: ImageFeatures, network: MatchingNetwork, options: MatchOptions) -> Matched:
    iterations = {
        "iters_local": options.iters_local,
        "iters_global": options.iters_global,
        "updates": options.updates,
    }
    network = in_evaluation_mode(network)
    found = network.match_features(reference, query, **iterations)
    if options.confidence == "learnt":
        return Matched(found.flow, None, found.confidence, found.visibility)
    return Matched(found.flow, network.match_features(query, reference, **iterations).flow)
