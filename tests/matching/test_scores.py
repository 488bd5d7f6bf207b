"""Scores of a reference pixel over the query."""

import numpy as np
import pytest
import torch

import gocor
from gocor.demo.facade import render_views
from gocor.matching import MatchOptions, MatchResult
from gocor.matching.scores import LayerScores, confident_cells, layer_scores
from gocor.models import create_model, load_model
from gocor.modules import GlobalGOCor
from gocor.ops.correlation import global_correlation
from gocor.utils.defaults import MODEL

NETWORKS = ["recurrent-gocor-tiny", "glunet-gocor-tiny", "basenet-gocor-tiny", "semantic-glunet-tiny"]


def result(height=96, width=128, seed=0):
    rng = np.random.default_rng(seed)
    reference, query = rng.integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    flow, confidence = torch.zeros(2, height, width), torch.ones(height, width)
    return MatchResult(reference, query, flow, confidence, torch.zeros(height, width, dtype=torch.bool))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_shows_its_layers(name):
    network = create_model(name)
    layers = layer_scores(network, result(), MatchOptions(iters_global=2, iters_local=1))
    assert [layer.name for layer in layers] == ["global", "local"]
    plain = "gocor" not in name
    assert len(layers[0].titles) == (1 if plain else 3)
    assert len(layers[1].titles) == (1 if plain else 2)
    assert [layer.reach for layer in layers] == [None, 2]
    for layer in layers:
        assert layer.titles[0] == "Plain correlation"
        for scores in layer.at(127, 95):
            assert scores.shape == tuple(layer.query.shape[1:])
            assert np.isfinite(scores).all()


def test_a_network_without_stages_has_no_scores():
    assert layer_scores(create_model("pwcnet-gocor-tiny"), result(), MatchOptions()) == []


def test_scores_are_those_of_the_layer():
    """Row of the volumes that the module computes, for plain correlation and after each iteration."""
    layer, reference, query = GlobalGOCor(8), torch.randn(1, 8, 6, 8), torch.randn(1, 8, 6, 8)

    class Network(type(create_model("basenet-gocor-tiny"))):
        def stages(self, *inputs):
            from gocor.models.stages import Stage

            return [Stage("global", layer, reference, query)]

    network = create_model("basenet-gocor-tiny")
    network.__class__ = Network
    (found,) = layer_scores(network, result(), MatchOptions(iters_global=3))
    volumes = [global_correlation(reference, query), *layer.explain(reference, query, 3).query_volumes[1:]]
    x, y = 70, 40  # of 128×96 pixels: cell (4, 2)
    for scores, volume in zip(found.at(x, y), volumes, strict=True):
        np.testing.assert_allclose(scores.ravel(), volume[0, :, 2, 4].detach(), rtol=1e-4, atol=1e-5)


def layer_with_peak(column, row, reach=None):
    """A layer of one channel whose scores are highest in one cell of the query."""
    query = torch.zeros(1, 6, 8)
    query[0, row, column], query[0, 0, 0] = 1, 0.5
    return LayerScores("global", ("Plain correlation",), (torch.ones(1, 6, 8),), query, (96, 128), (48, 64), reach)


def test_a_peak_is_compared_with_the_match():
    layer = layer_with_peak(6, 4)
    (scores,) = layer.at(3, 3)
    centre = (6.5 * 8 - 0.5, 4.5 * 8 - 0.5)
    peak = layer.peak(scores, centre)
    assert (peak.position, peak.distance, peak.hit, peak.ratio) == (centre, 0, True, 0.5)
    far = layer.peak(scores, (3.5, 3.5))
    assert not far.hit
    assert far.ratio == 2
    assert far.distance == pytest.approx(np.hypot(48, 32))
    assert layer.peak(scores, (-500, -500)).hit is False  # a match outside of the query


def test_a_local_layer_is_judged_within_its_reach():
    """The highest score of the whole query, in cell (6, 4), is out of reach of a match in cell (1, 0)."""
    match = (1.5 * 8 - 0.5, 0.5 * 8 - 0.5)
    for reach, hit, ratio in ((None, False, 2), (5, False, 2), (4, True, 0)):
        layer = layer_with_peak(6, 4, reach)
        peak = layer.peak(layer.at(0, 0)[0], match)
        assert (peak.hit, peak.ratio) == (hit, ratio)
    assert layer_with_peak(6, 4, 1).peak(layer.at(0, 0)[0], (-500, -500)).hit is False  # nothing within reach


def test_a_local_layer_is_measured_within_its_reach():
    found = result()
    found.confidence[:] = 0
    found.confidence[:16, :16] = 1  # one cell of the reference, whose match is in cell (0, 0) of the query
    assert layer_with_peak(6, 4).measure(found).hits == (0.0,)
    assert layer_with_peak(6, 4, reach=3).measure(found).hits == (1.0,)


def test_measured_pixels_are_confident_and_inside():
    found = result()
    found.confidence[:48] = 0.2
    found.flow[0, :, 64:] = 1000
    points = confident_cells(found, (6, 8))
    assert (points[:, 1] >= 48).all()
    assert (points[:, 0] < 64).all()
    assert len(points) == 12


def test_no_confident_pixel():
    found = result()
    found.confidence[:] = 0
    measured = layer_with_peak(6, 4).measure(found)
    assert (measured.pixels, measured.hits, measured.telling) == (0, (0.0,), None)


@pytest.fixture(scope="module")
def facade():
    """The façade with its true flow, and the layers of the network that ships."""
    views = render_views()
    height, width = views.reference.shape[:2]
    y, x = np.mgrid[:height, :width].astype(float)
    to = np.stack([x, y, np.ones_like(x)], -1) @ views.homography.T
    flow = torch.from_numpy(to[..., :2] / to[..., 2:] - np.stack([x, y], -1)).permute(2, 0, 1).float()
    hidden = torch.zeros(height, width, dtype=torch.bool)
    found = MatchResult(views.reference, views.query, flow, torch.ones(height, width), hidden)
    network = load_model("recurrent-gocor", device="cpu")
    return found, layer_scores(network, found, MatchOptions(min_size=0))


def test_gocor_finds_more_windows_than_plain_correlation(facade):
    """The global layer of the network that ships, on windows that look alike; 39 and 61 % were measured."""
    found, layers = facade
    measured = layers[0].measure(found)
    assert measured.pixels > 200
    assert measured.hits[0] < 0.45
    assert measured.hits[-1] > 0.55


def test_the_telling_pixel_shows_the_difference(facade):
    found, layers = facade
    x, y = map(int, layers[0].measure(found).telling)
    match = (x + float(found.flow[0, y, x]), y + float(found.flow[1, y, x]))
    peaks = [layers[0].peak(scores, match) for scores in layers[0].at(x, y)]
    assert not peaks[0].hit
    assert peaks[-1].hit
    assert peaks[-1].ratio < 1 < peaks[0].ratio


def test_the_default_network_is_named_once():
    import inspect

    from gocor.cli.match import match

    assert inspect.signature(gocor.match).parameters["model"].default is MODEL
    assert inspect.signature(match).parameters["model"].default is MODEL
