"""Match each image of a sequence with the next one."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from ..models.network import MatchingNetwork
from ..utils.arrays import Picture
from .api import match_pictures
from .features import FeatureCache
from .options import DEFAULT_OPTIONS, MatchOptions
from .result import MatchResult


def match_sequence(
    pictures: Iterable[Picture], network: MatchingNetwork, options: MatchOptions = DEFAULT_OPTIONS
) -> Iterator[MatchResult]:
    """Match every picture with its successor. Two pictures are held at a time.

    A picture is the query of one pair and the reference of the next. If the network can match features that were
    computed before (`MatchingNetwork.reuses_features`), it computes the features of each picture once.

    Args:
        pictures: RGB `(H, W, 3)` uint8, each an array of its own.
        network: a network on any device.
        options: how to match. With alignment, the features of the aligned query are computed for each pair. With the
            CUDA graphs of `MatchingNetwork.accelerate`, which work on whole pairs, all features are computed twice.

    Yields:
        One result for each pair, one fewer than there are pictures.
    """
    cache = FeatureCache()
    for reference, query in pairwise(pictures):
        yield from match_pictures([(reference, query)], network, options, cache)
        cache.drop(reference)
