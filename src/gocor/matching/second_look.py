"""A second look at what a network is unsure of.

A network that starts from one global match can miss large motion, and its learnt confidence is low there. Images of
half the size have half the motion, so the network finds it there more often. Their flow is a second start for the
network at full size. What it finds from there replaces the first result where it is more confident.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..models.network import MatchingNetwork
from ..models.outputs import Prediction
from ..ops.patches import box
from .features import FeatureCache, Images, match_at, predict, size_of_match

LOG = logging.getLogger("gocor.matching")


@dataclass(frozen=True, kw_only=True)
class SecondLookSettings:
    """Settings of `predict_twice`."""

    sure: float = 0.975  # Mean confidence of the visible pixels from which a pair gets no second look.
    min_gain: float = 0.05  # Gain of confidence that the second result needs to replace the first.
    window: float = 1 / 24  # Side of the windows over which confidences are averaged, relative to the shorter side.
    half_updates: int = 6  # Updates at half the size, at most.
    updates: int = 8  # Updates at full size from the new start, at most.


DEFAULT_SECOND_LOOK = SecondLookSettings()


def predict_twice(
    network: MatchingNetwork,
    reference: Images,
    query: Images,
    *,
    confidence: bool,
    second_look: bool = False,
    settings: SecondLookSettings = DEFAULT_SECOND_LOOK,
    **options: Any,
) -> Prediction:
    """`predict`, with a second look at pairs that the network is unsure of.

    Args:
        network: a network in evaluation mode.
        reference: the references.
        query: the queries.
        confidence: predict the confidence too; only for networks that learn it.
        second_look: whether there is a second look; only networks that take a start can have one.
        settings: thresholds.
        **options: options of `MatchingNetwork.forward`.
    """
    if not second_look or not network.takes_start or network.graphs is not None:
        return predict(network, reference, query, confidence=confidence, **options)
    cache = FeatureCache()
    reference, query = Images.of(reference, cache), Images.of(query, cache)
    found = predict(network, reference, query, confidence=True, **options)
    unsure = [i for i, sure in enumerate(_sureness(found).tolist()) if sure < settings.sure]
    if unsure:
        LOG.info("matching again, from images of half the size")
        again = _match_from_half(network, reference[unsure], query[unsure], settings, options)
        maps = found.maps
        maps[unsure] = more_confident(maps[unsure], again.maps, settings)
        found = Prediction.of_maps(maps)
    return found if confidence else Prediction(found.flow, None, None)


def _sureness(found: Prediction) -> Tensor:
    """Mean confidence of the pixels that the query shows, `(B,)`."""
    assert found.confidence is not None
    assert found.visibility is not None
    shown = found.visibility.mean((1, 2, 3)).clamp(min=1e-6)
    return (found.confidence * found.visibility).mean((1, 2, 3)) / shown


def _match_from_half(
    network: MatchingNetwork, reference: Images, query: Images, settings: SecondLookSettings, options: dict[str, Any]
) -> Prediction:
    """The match at full size that starts from the flow of images of half the size."""
    height, width = size_of_match(network, reference, options)
    most = options.get("updates") or max(settings.half_updates, settings.updates)
    iters = {name: value for name, value in options.items() if name in ("iters_local", "iters_global")}
    half = network.round_size(height // 2, width // 2)
    start = match_at(network, reference, query, half, updates=min(most, settings.half_updates), **iters).flow
    both = reference, query, (height, width)
    return match_at(network, *both, start=start, updates=min(most, settings.updates), **iters)


def more_confident(first: Tensor, second: Tensor, settings: SecondLookSettings = DEFAULT_SECOND_LOOK) -> Tensor:
    """The first result, and the second one where it is more confident; both as `Prediction.maps`, `(B, 4, H, W)`."""
    gain = mean_confidence(second, settings) - mean_confidence(first, settings)
    return torch.where(gain > settings.min_gain, second, first)


def mean_confidence(maps: Tensor, settings: SecondLookSettings = DEFAULT_SECOND_LOOK) -> Tensor:
    """Confidence of a result, as `Prediction.maps`, averaged over a window around each pixel: `(B, 1, H, W)`."""
    return box(maps[:, 2:3], 2 * int(settings.window / 2 * min(maps.shape[2:])) + 1)
