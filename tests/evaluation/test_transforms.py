"""Pairs at other sizes."""

import numpy as np
import pytest

from gocor.data.datasets import Pair, homography_pair
from gocor.evaluation.transforms import lanczos, pad_to_common_size, resize_by_short_side, resize_homography_pair

from ..data.datasets.samples import texture

MATRIX = np.array([[0.9, 0.1, 3.0], [-0.05, 1.1, -2.0], [1e-3, -2e-4, 1.0]])


def test_a_homography_is_resized_with_its_images():
    pair = homography_pair("a", texture(0, 60, 80), texture(1, 90, 100), MATRIX)
    small = resize_homography_pair(pair, (30, 20))
    assert small.reference.shape == small.query.shape == (30, 20, 3)
    point = np.array([37.0, 22.0])
    a, b, c = MATRIX @ (*point, 1)
    there = np.array([a / c, b / c])
    scaled = lambda xy, w, h: (xy + 0.5) * (20 / w, 30 / h) - 0.5  # noqa: E731 pixels cover areas
    a, b, c = small.homography @ (*scaled(point, 80, 60), 1)
    assert np.allclose((a / c, b / c), scaled(there, 100, 90))
    with pytest.raises(ValueError, match="only pairs with a homography"):
        resize_homography_pair(Pair("b", texture(), texture(), points=np.zeros((1, 4))), (30, 20))


def test_resizing_to_the_same_size_changes_nothing():
    pair = homography_pair("a", texture(0), texture(1), MATRIX)
    same = resize_homography_pair(pair, pair.valid.shape)
    assert np.array_equal(same.reference, pair.reference)
    assert np.allclose(same.homography, pair.homography)


def test_short_side_multiples_and_points():
    points = np.array([[10, 20, 30, 40], [0, 5, 5, 5], [199, 5, 5, 5], [50, 50, 149.9, 5]], float)
    pair = Pair("a", texture(0, 100, 200), texture(1, 300, 151), points=points)
    small = resize_by_short_side(pair, 50, 16)
    assert small.reference.shape == (48, 96, 3)  # 50×100, down to multiples of 16
    assert small.query.shape == (96, 48, 3)  # 99×50
    ratios = [96 / 200, 48 / 100, 48 / 151, 96 / 300]
    assert np.allclose(small.points, points[:1] * ratios)  # the others are on a border or beyond


def test_padding_is_at_the_bottom_and_on_the_right():
    flow = np.ones((40, 30, 2), np.float32)
    pair = Pair("a", texture(0, 40, 30), texture(1, 20, 50), flow, np.ones((40, 30), bool), group="g", mirrored=True)
    padded = pad_to_common_size(pair)
    assert padded.reference.shape == padded.query.shape == (40, 50, 3)
    assert np.array_equal(padded.query[:20], pair.query)
    assert not padded.query[20:].any()
    assert padded.valid.sum() == pair.valid.sum()
    assert padded.flow.shape == (40, 50, 2)
    assert (padded.group, padded.mirrored) == ("g", True)
    assert padded.occluded is None


def test_lanczos_does_not_alias():
    board = (np.indices((100, 130)).sum(0) % 2 * 255).astype(np.uint8)
    small = lanczos(np.repeat(board[..., None], 3, 2), (30, 40))
    assert small.shape == (30, 40, 3)
    assert np.abs(small.astype(int) - 127).max() < 20


def test_lanczos_keeps_a_flat_picture():
    assert (lanczos(np.full((50, 60, 3), 77, np.uint8), (16, 90)) == 77).all()
