"""Features that are kept for other pairs: what is computed once, what is forgotten, and that nothing else changes."""

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
import torch

from gocor.matching import MatchOptions
from gocor.matching.api import match_pictures
from gocor.matching.features import CPU_BYTES, FeatureCache, Images, default_limit, encode
from gocor.models import create_model
from gocor.models.graphs import GraphCache

SIZES = ((48, 64), (64, 48), (48, 64), (80, 96))


def pictures(sizes=SIZES):
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes]


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return create_model("recurrent-gocor-tiny").eval()


@pytest.fixture
def encoded(network, monkeypatch):
    """Sizes of the images that the encoder is given."""
    sizes, real = [], network.pyramid.before_pooling
    monkeypatch.setattr(
        network.pyramid, "before_pooling", lambda x, levels: sizes.extend([x.shape[2:]] * len(x)) or real(x, levels)
    )
    return sizes


def check_same(found, expected):
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.flow, plain.flow, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(ours.confidence, plain.confidence, rtol=1e-3, atol=1e-3)
        assert (ours.occlusion != plain.occlusion).float().mean() < 0.01


@pytest.mark.parametrize("options", [{}, {"confidence": "consistency"}, {"max_size": 32}, {"align": True}])
@pytest.mark.usefixtures("quick_alignment")
def test_results_are_those_of_single_pairs(network, options):
    options = MatchOptions(**{"min_size": 0, "align": False, "updates": 2} | options)
    pairs, cache = list(permutations(pictures(), 2)), FeatureCache()
    found = [match_pictures([pair], network, options, cache)[0] for pair in pairs]
    check_same(found, [match_pictures([pair], network, options)[0] for pair in pairs])


def test_each_image_is_encoded_once_at_each_working_size(network, encoded):
    options, cache = MatchOptions(min_size=0, align=False, updates=1, second_look=False), FeatureCache()
    for pair in permutations(pictures(), 2):
        match_pictures([pair], network, options, cache)
    assert {tuple(size): encoded.count(size) for size in encoded} == {(48, 64): 4, (64, 48): 4, (80, 96): 4}


def test_both_directions_share_features(network, encoded):
    first, second, *_ = pictures(((48, 64), (48, 64)))
    options = MatchOptions(min_size=0, align=False, confidence="consistency")
    match_pictures([(first, second)], network, replace(options, second_look=False))
    assert encoded == [(48, 64)] * 2
    encoded.clear()
    match_pictures([(first, second)], network, options)
    assert encoded == [(48, 64)] * 2 + [(32, 32)] * 2  # a second look, for both directions


def test_an_image_that_occurs_twice_in_a_batch_is_encoded_once(network, encoded):
    first, second, third = pictures(((48, 64),) * 3)
    options = MatchOptions(min_size=0, align=False, updates=1, second_look=False)
    pairs = [(first, second), (first, third), (third, first)]
    found = match_pictures(pairs, network, options, FeatureCache())
    assert len(encoded) == 3
    check_same(found, [match_pictures([pair], network, options)[0] for pair in pairs])


@pytest.mark.usefixtures("quick_alignment")
def test_coarse_features_of_unaligned_images_are_computed_once():
    torch.manual_seed(0)
    network = create_model("glunet-gocor-tiny").eval()  # it cannot reuse the others
    calls, real = [], network.coarse_features
    network.coarse_features = lambda images: calls.append(len(images)) or real(images)
    options, cache = MatchOptions(min_size=0, iters_local=1), FeatureCache()
    some = pictures(((64, 64),) * 3)
    pairs = list(combinations(some, 2))
    found = [match_pictures([pair], network, options, cache)[0] for pair in pairs]
    kept = sum(calls)
    calls.clear()
    plain = [match_pictures([pair], network, options)[0] for pair in pairs]
    assert kept <= sum(calls) - 2  # of three references, two are one image; so are two of three queries
    check_same(found, plain)


@pytest.mark.usefixtures("quick_alignment")
def test_networks_with_graphs_match_whole_pairs_one_by_one_in_the_alignment(network, monkeypatch):
    """A graph belongs to one batch size, and the number of pairs that are aligned varies."""
    options, counts, real = (
        MatchOptions(min_size=0, updates=1, precision="float32", second_look=False),
        [],
        network.predict,
    )
    some = pictures(((64, 64),) * 3)
    pairs = list(combinations(some, 2))
    expected = match_pictures(pairs, network, options)
    monkeypatch.setattr(network, "graphs", GraphCache())
    monkeypatch.setattr(network, "predict", lambda x, y, **kw: counts.append(len(x)) or real(x, y, **kw))
    check_same(match_pictures(pairs, network, options, FeatureCache()), expected)
    assert counts == [1, 1, 1]


def test_the_bound_of_the_cache(network):
    def features(number):
        return (torch.full((1, 250), number, dtype=torch.float32),)  # 1000 bytes

    some = [np.zeros(10, np.uint8) for _ in range(3)]
    cache = FeatureCache(2100)
    for i, image in enumerate(some[:2]):
        cache.put(image, "kind", features(i))
    assert cache.get(some[0], "kind") is not None
    cache.put(some[2], "kind", features(2))
    assert [cache.get(image, "kind") is None for image in some] == [False, True, False]
    assert cache.get(some[0], "other kind") is None
    assert cache.bytes == 2 * 1010
    cache.put(some[2], "kind", features(3))  # replaces
    assert cache.bytes == 2 * 1010
    cache.drop(some[0])
    assert cache.bytes == 1010
    cache.put(some[0], "kind", (torch.zeros(1000),))  # too large
    assert (cache.bytes, cache.get(some[0], "kind")) == (0, None)
    assert default_limit(torch.device("cpu")) == CPU_BYTES


def test_matching_stays_within_the_bound(network):
    options, some = MatchOptions(min_size=0, align=False, updates=1), pictures()
    whole = FeatureCache()
    match_pictures([(some[0], some[2])], network, options, whole)
    small = FeatureCache(whole.bytes // 2 + 10)  # one image
    for pair in permutations(some, 2):
        match_pictures([pair], network, options, small)
        assert small.bytes <= whole.bytes // 2 + 10


def test_a_slice_of_a_batch_does_not_keep_the_others():
    cache = FeatureCache()
    images = Images(torch.rand(2, 3, 4, 4), [object(), object()], cache)
    (both,) = encode((images,), "kind", lambda x: x, lambda x: (x + 1,))
    torch.testing.assert_close(both[0], images.pixels + 1)
    assert cache.get(images.identities[0], "kind")[0].untyped_storage().nbytes() == both[0].nbytes // 2
