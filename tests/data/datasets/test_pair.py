"""Pairs and data sets of them."""

import numpy as np
import pytest

from gocor.data.datasets import Pair, PairDataset, homography_flow, homography_pair
from gocor.data.datasets.pair import Item

from .samples import pictures

MATRIX = np.array([[0.9, 0.1, 3.0], [-0.05, 1.1, -2.0], [1e-4, -2e-4, 1.0]])


def test_flow_of_a_homography_by_hand():
    flow, valid = homography_flow(2 * MATRIX, (30, 40))
    assert valid.all()
    for x, y in ((0, 0), (39, 0), (12, 29)):
        a, b, c = MATRIX @ (x, y, 1)
        assert np.allclose(flow[y, x], (a / c - x, b / c - y))


def test_beyond_the_horizon_nothing_is_valid():
    matrix = np.eye(3)
    matrix[2] = [-0.1, 0, 1]  # the depth vanishes at x = 10
    pair = homography_pair("a", *pictures(), matrix)
    assert pair.valid[:, :10].all()
    assert not pair.valid[:, 10:].any()
    assert not pair.flow[~pair.valid].any()
    assert len(pair.truth().start) == pair.valid.sum()


def test_truth_of_a_homography_is_not_rounded():
    pair = homography_pair("a", *pictures(), MATRIX)
    start, end, occluded = pair.truth()
    ones = np.column_stack([start, np.ones(len(start))]) @ MATRIX.T
    assert np.abs(end - ones[:, :2] / ones[:, 2:]).max() < 1e-12
    assert occluded is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "either a flow or points"),
        ({"flow": np.zeros((40, 56, 2), np.float32)}, "flow and valid must be given together"),
        (
            {"flow": np.zeros((40, 55, 2), np.float32), "valid": np.ones((40, 56), bool)},
            r"flow must have shape \(40, 56",
        ),
        ({"points": np.zeros((4, 3))}, "points must have rows"),
    ],
)
def test_pairs_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        Pair("a", *pictures(), **fields)


def test_pictures_are_checked():
    reference, query = pictures()
    with pytest.raises(ValueError, match="query must be RGB"):
        Pair("a", reference, query[..., :1], points=np.zeros((1, 4)))


def test_a_data_set_is_a_sequence():
    read = lambda name: lambda: Pair(name, *pictures(), points=np.zeros((1, 4)))  # noqa: E731
    data = PairDataset("mine", [Item(str(n), read(str(n))) for n in range(10)])
    assert [pair.name for pair in data[2:4]] == ["2", "3"]
    assert data[-1].name == "9"
    assert data.spread(3).names == ("0", "4", "9")
    assert data.spread(99) is data
    with pytest.raises(ValueError, match="at least 1"):
        data.spread(0)
    with pytest.raises(IndexError):
        data[10]
    with pytest.raises(ValueError, match="must have different names"):
        PairDataset("mine", [Item("a", read("a"))] * 2)
