"""Qualitative sheets."""

import cv2
import numpy as np
import pytest
import torch

from gocor.data.datasets import Pair, open_dataset
from gocor.evaluation.baselines import dis, identity, network_matcher
from gocor.evaluation.confidences import confidences
from gocor.evaluation.sheets import choose_pixel, draw_sheet
from gocor.models import create_model

from ..data.datasets.samples import SHIFT, constant, pictures, write_sample


def dense_pair(**fields):
    reference, query = pictures(0, 96, 128)
    flow = constant(96, 128).transpose(1, 2, 0)
    return Pair("a", reference, query, flow, np.ones((96, 128), bool), **fields)


def test_the_chosen_pixel_has_a_match():
    pair = dense_pair()
    assert choose_pixel(pair) in [(x, y) for x in (63, 64) for y in (47, 48)]
    hidden = np.zeros((96, 128), bool)
    hidden[20:76, 30:98] = True
    x, y = choose_pixel(dense_pair(occluded=hidden))
    assert not hidden[int(y), int(x)]
    sparse = Pair("b", *pictures(), points=np.array([[1.0, 1, -9, 0], [2.0, 3, 4, 5]]))
    assert choose_pixel(sparse) == (2, 3)
    assert choose_pixel(Pair("c", *pictures(), points=np.empty((0, 4)))) == (27.5, 19.5)


def test_confidences_are_those_of_the_network():
    network, pair = create_model("glunet-gocor-tiny"), dense_pair()
    found = confidences(network, pair, (64.0, 48.0))
    assert found.titles[:2] == ["plain correlation", "GOCor, 0 iterations"]
    assert len(found.maps) == 2 + network.global_matching.correlation.iters
    assert all(values.shape == (16, 16) for values in found.maps)
    assert found.extent == (-0.5, 127.5, 95.5, -0.5)
    caught = []
    handle = network.global_matching.correlation.register_forward_hook(lambda *call: caught.append(call[2]))
    network_matcher(network)(pair.reference, pair.query)
    handle.remove()
    assert torch.allclose(caught[0][0, :, 8, 8], torch.from_numpy(found.maps[-1]).flatten(), atol=1e-4)
    assert confidences(create_model("glunet-tiny"), pair, (64.0, 48.0)) is None


def test_a_local_module_has_a_window():
    pair = dense_pair()
    found = confidences(create_model("pwcnet-gocor-tiny"), pair, (64.0, 48.0))
    assert found.maps[0].shape == (5, 5)
    left, right, bottom, top = found.extent
    assert left < 64 < right
    assert top < 48 < bottom


def read(data):
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


def test_sheets_with_and_without_gocor():
    pair = dense_pair()
    with_gocor = read(draw_sheet(pair, {"dis": dis, "GOCor": create_model("glunet-gocor-tiny")}, pixel=(30, 40)))
    without = read(draw_sheet(pair, {"identity": identity, "dis": dis}))
    assert with_gocor.shape[0] > 1.3 * without.shape[0]
    assert without.std() > 10
    three = read(draw_sheet(pair, {"identity": identity, "dis": dis, "again": dis}))
    assert (three.shape[0], three.shape[1] > without.shape[1]) == (without.shape[0], True)


def test_confidences_of_the_reference_itself_peak_at_the_pixel():
    found = confidences(create_model("glunet-gocor-tiny"), dense_pair(), (30, 40))
    assert len(found.own_maps) == len(found.maps) == len(found.titles)
    left, right, bottom, top = found.own_extent
    for scores in found.own_maps[:1]:  # plain correlation of unit vectors is highest with itself
        row, column = np.unravel_index(scores.argmax(), scores.shape)
        x = left + (column + 0.5) * (right - left) / scores.shape[1]
        y = top + (row + 0.5) * (bottom - top) / scores.shape[0]
        assert abs(x - 30) <= (right - left) / scores.shape[1]
        assert abs(y - 40) <= (bottom - top) / scores.shape[0]


def test_sheets_show_what_the_options_give():
    pair, matchers = dense_pair(), {"dis": dis, "GOCor": create_model("glunet-gocor-tiny")}
    usual = draw_sheet(pair, matchers)
    assert draw_sheet(pair, matchers, options={"GOCor": {}}) == usual
    assert draw_sheet(pair, matchers, options={"GOCor": {"iters_local": 0, "iters_global": 0}}) != usual


def test_a_sheet_of_sparse_points(tmp_path):
    pair = open_dataset("eth3d", write_sample("eth3d", tmp_path))[0]
    assert np.allclose(pair.points[:, 2:] - pair.points[:, :2], SHIFT)
    assert read(draw_sheet(pair, {"identity": identity, "dis": dis})).std() > 10


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="two or more matchers, got 1"):
        draw_sheet(dense_pair(), {"dis": dis})
    with pytest.raises(ValueError, match=r"outside the reference, which has 128×96 pixels"):
        draw_sheet(dense_pair(), {"identity": identity, "dis": dis}, pixel=(128, 0))
