"""Matching of a sequence: same flows as pair by pair, with the features of each picture computed once."""

import numpy as np
import pytest
import torch

from gocor.matching import MatchOptions, match, match_sequence
from gocor.models import create_model

SIZE = (48, 64)


def pictures(count=3, seed=0):
    return list(np.random.default_rng(seed).integers(0, 256, (count, *SIZE, 3), np.uint8))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return create_model("recurrent-gocor-tiny")


@pytest.mark.parametrize(
    "options",
    [{}, {"confidence": "consistency"}, {"iters_local": 0, "iters_global": 1, "updates": 2}, {"max_size": 32}],
)
def test_flows_are_those_of_single_pairs(network, options):
    options = {"min_size": 0, "align": False, **options}
    frames = pictures()
    found = list(match_sequence(iter(frames), network, MatchOptions(**options)))
    assert len(found) == 2
    for result, first, second in zip(found, frames, frames[1:], strict=False):
        plain = match(first, second, network, **options)
        torch.testing.assert_close(result.flow, plain.flow, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(result.confidence, plain.confidence, rtol=1e-3, atol=1e-3)
        assert (result.occlusion != plain.occlusion).float().mean() < 0.01
        assert result.reference is first
        assert result.query is second


def test_features_of_each_picture_are_computed_once(network, monkeypatch):
    shapes = []
    before_pooling = network.pyramid.before_pooling
    monkeypatch.setattr(
        network.pyramid, "before_pooling", lambda x, levels: shapes.append(x.shape) or before_pooling(x, levels)
    )
    list(match_sequence(pictures(4), network, MatchOptions(min_size=0, align=False, second_look=False)))
    assert shapes == [(2, 3, *SIZE), (1, 3, *SIZE), (1, 3, *SIZE)]


def test_networks_without_features_of_their_own_match_pair_by_pair():
    network = create_model("pwcnet-gocor-tiny")
    frames = pictures()
    found = list(match_sequence(frames, network, MatchOptions(min_size=0)))
    for result, first, second in zip(found, frames, frames[1:], strict=False):
        torch.testing.assert_close(result.flow, match(first, second, network, min_size=0).flow)
    with pytest.raises(TypeError, match="pwcnet-gocor-tiny cannot match features"):
        network.features(torch.zeros(1, 3, *SIZE))


def test_features_of_two_working_sizes_are_an_error(network):
    image = torch.zeros(1, 3, *SIZE)
    first, second = (network.features(image, min_size=0, max_size=side) for side in (64, 32))
    with pytest.raises(ValueError, match=r"one working size, got \(48, 64\) and \(32, 32\)"):
        network.match_features(first, second)


def test_a_sequence_of_one_picture_has_no_pairs(network):
    assert list(match_sequence(pictures(1), network)) == []
