"""Baselines: what they find, and that they take what comes."""

import cv2
import numpy as np
import pytest

from gocor.data.datasets import homography_pair
from gocor.evaluation.baselines import BASELINES, dis, farneback, identity, sift_homography
from gocor.evaluation.metrics import endpoint_errors

from ..data.datasets.samples import pictures, texture


def error(matcher, reference, query, shift):
    flow = matcher(reference, query)
    assert flow.shape == (*reference.shape[:2], 2)
    assert flow.dtype == np.float32
    inner = flow[10:-10, 10:-10]
    return np.linalg.norm(inner - shift, axis=2).mean()


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "identity"])
def test_a_shift_is_found(name):
    reference, query = pictures(0, height=120, width=160, shift=(4, -3))
    assert error(BASELINES[name], reference, query, (4, -3)) < 0.5


@pytest.mark.parametrize("matcher", [dis, farneback, sift_homography])
def test_a_query_of_another_size(matcher):
    """Its coordinates are its own: a picture of twice the size."""
    reference = texture(1, 120, 160)
    query = cv2.resize(reference, (320, 240), interpolation=cv2.INTER_CUBIC)
    matrix = np.array([[2, 0, 0.5], [0, 2, 0.5], [0, 0, 1.0]])
    pair = homography_pair("a", reference, query, matrix)
    assert np.median(endpoint_errors(pair, matcher(reference, query)).error) < 0.6


@pytest.mark.parametrize("name", BASELINES)
def test_pictures_without_anything_to_find(name):
    black = np.zeros((64, 80, 3), np.uint8)
    assert np.isfinite(BASELINES[name](black, black)).all()


def test_identity_does_not_move():
    assert not identity(*pictures()).any()


def test_baselines_are_deterministic():
    pair = pictures(2, height=120, width=160)
    for matcher in BASELINES.values():
        assert np.array_equal(matcher(*pair), matcher(*pair))
