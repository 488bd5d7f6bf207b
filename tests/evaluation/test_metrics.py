"""Metrics, each against a computation of another kind."""

import numpy as np
import pytest

from gocor.data.datasets import Pair
from gocor.evaluation.metrics import (
    BOUNDARIES,
    SPEEDS,
    THRESHOLDS,
    add,
    boundary_distance,
    endpoint_errors,
    ratios,
    regions,
    sums,
)

from ..data.datasets.samples import pictures

generator = np.random.default_rng(0)


def dense(flow, valid=None, occluded=None, query=None):
    height, width = flow.shape[:2]
    reference = np.zeros((height, width, 3), np.uint8)
    valid = np.ones((height, width), bool) if valid is None else valid
    return Pair("a", reference, reference if query is None else query, flow.astype(np.float32), valid, occluded)


def test_errors_by_hand():
    truth = np.zeros((2, 3, 2))
    truth[0, 0] = (1, 1)  # inside
    truth[0, 2] = (1, 0)  # leaves on the right
    truth[1, 1] = (-1, 0)
    valid = np.array([[True, False, True], [True, True, True]])
    estimate = np.zeros((2, 3, 2))
    estimate[1, 0] = (3, 4)
    found = endpoint_errors(dense(truth, valid), estimate)
    assert found.start.tolist() == [[0, 0], [0, 1], [1, 1], [2, 1]]
    assert np.allclose(found.error, [np.sqrt(2), 5, 1, 0])
    assert np.allclose(found.length, [np.sqrt(2), 0, 1, 0])
    everywhere = endpoint_errors(dense(truth, valid), estimate, inside_only=False)
    assert np.allclose(everywhere.error, [np.sqrt(2), 1, 5, 1, 0])


def test_the_border_of_the_query_is_inside():
    truth = np.zeros((4, 5, 2))
    truth[..., 0] = 4 - np.arange(5)  # everything lands on the last column
    assert endpoint_errors(dense(truth), truth).error.size == 20
    truth[..., 0] += 1e-3
    assert endpoint_errors(dense(truth), truth).error.size == 0


def test_a_query_of_another_size_decides_what_is_inside():
    query = np.zeros((3, 4, 3), np.uint8)
    assert endpoint_errors(dense(np.zeros((5, 6, 2)), query=query), np.zeros((5, 6, 2))).error.size == 12


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_counts_as_the_diagonal(bad):
    estimate = np.zeros((3, 4, 2))
    estimate[1, 2, 0] = bad
    error = endpoint_errors(dense(np.zeros((3, 4, 2))), estimate).error
    assert error[1 * 4 + 2] == 5
    assert error.sum() == 5


def test_a_flow_of_another_shape_is_an_error():
    with pytest.raises(ValueError, match=r"a: the flow must have shape \(3, 4, 2\), got \(2, 3, 4\)"):
        endpoint_errors(dense(np.zeros((3, 4, 2))), np.zeros((2, 3, 4)))


def test_points_are_interpolated_or_rounded():
    reference, query = pictures()
    pair = Pair("a", reference, query, points=np.array([[10.4, 12.0, 15.0, 9.0]]))
    flow = np.zeros((*reference.shape[:2], 2))
    flow[..., 0] = np.arange(reference.shape[1])  # x moves by x
    assert endpoint_errors(pair, flow).error[0] == pytest.approx(np.hypot(2 * 10.4 - 15, 12 - 9))
    assert endpoint_errors(pair, flow, rounding="read").error[0] == pytest.approx(np.hypot(10.4 + 10 - 15, 12 - 9))
    assert endpoint_errors(pair, flow, rounding="move").error[0] == pytest.approx(np.hypot(10 + 10 - 15, 12 - 9))
    with pytest.raises(ValueError, match="rounding"):
        endpoint_errors(pair, flow, rounding="yes")


def test_sums_and_ratios_by_loops():
    error, length = generator.exponential(4, 500), generator.exponential(60, 500)
    error[:3] = [1, 3, 5]  # thresholds are included
    found = ratios(sums(error, length, limit=2.5))
    assert found["aepe"] == pytest.approx(error.mean())
    assert found["std"] == pytest.approx(error.std())
    for threshold in THRESHOLDS:
        assert found[f"pck-{threshold}"] == sum(value <= threshold for value in error) / 500
    assert found["fl"] == sum(e > 3 and e / n > 0.05 for e, n in zip(error, length, strict=True)) / 500
    assert found["pck-alpha"] == sum(value <= 2.5 for value in error) / 500


@pytest.mark.parametrize(
    ("error", "length", "outlier"), [(4, 100, 0), (6, 100, 1), (2.9, 1, 0), (3.1, 1, 1), (3, 10, 0)]
)
def test_outliers_as_kitti_defines_them(error, length, outlier):
    """More than 3 pixels and more than 5 %: https://www.cvlibs.net/datasets/kitti/eval_scene_flow.php."""
    assert sums(np.array([float(error)]), np.array([float(length)]))["fl"] == outlier


def test_adding_up_is_pooling():
    parts = [generator.exponential(3, n) for n in (10, 1, 70)]
    pooled = ratios(add([sums(part, part) for part in parts]))
    together = ratios(sums(np.concatenate(parts), np.concatenate(parts)))
    assert pooled == pytest.approx(together)


def test_regions_partition_the_points():
    flow = generator.normal(0, 30, (40, 50, 2))
    occluded = generator.random((40, 50)) < 0.2
    pair = dense(flow, generator.random((40, 50)) < 0.7, occluded)
    errors = endpoint_errors(pair, np.zeros((40, 50, 2)), inside_only=False)
    found = regions(pair, errors, detailed=True)
    assert (found["noc"] ^ found["occ"]).all()
    assert np.array_equal(found["occ"], occluded[pair.valid])
    speed = np.hypot(*flow[pair.valid].T)
    assert sum(found[name].sum() for name in SPEEDS) == pair.valid.sum()
    assert found["s0-10"].sum() == (speed < 10).sum()
    assert found["s10-40"].sum() == ((speed >= 10) & (speed < 40)).sum()
    assert set(regions(pair, errors)) == {"noc", "occ"}


def brute_distance(edge):
    rows, columns = np.nonzero(edge)
    y, x = np.mgrid[: edge.shape[0], : edge.shape[1]]
    return np.sqrt(((y[..., None] - rows) ** 2 + (x[..., None] - columns) ** 2).min(-1))


def test_distance_from_the_edge_of_occlusions():
    occluded = np.zeros((50, 60), bool)
    occluded[20:30, 10:25] = True
    edge = np.zeros_like(occluded)  # pixels that differ from the one on their left, or above
    edge[20:30, [10, 25]] = True
    edge[[20, 30], 10:25] = True
    ours = boundary_distance(dense(np.zeros((50, 60, 2)), occluded=occluded))
    assert np.abs(ours - brute_distance(edge)).max() < 1e-3


def test_distance_from_a_motion_boundary():
    flow = np.zeros((50, 200, 2))
    flow[:, 30:] = (8, 0)
    pair = dense(flow)
    ours = boundary_distance(pair)
    assert np.allclose(ours, np.abs(np.arange(200) - 30)[None], atol=1e-3)
    found = regions(pair, endpoint_errors(pair, flow, inside_only=False), detailed=True)
    assert [int(found[name].sum()) // 50 for name in BOUNDARIES] == [19, 71, 80]
    assert np.isinf(boundary_distance(dense(np.ones((5, 5, 2))))).all()


def test_sparse_pairs_have_no_boundaries():
    pair = Pair("a", *pictures(), points=np.zeros((1, 4)))
    with pytest.raises(ValueError, match="boundaries need a dense flow"):
        boundary_distance(pair)
    assert set(regions(pair, endpoint_errors(pair, np.zeros((40, 56, 2))), detailed=True)) == {"s0-10"}
