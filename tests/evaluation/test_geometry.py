"""Areas under curves, homographies and poses."""

import cv2
import numpy as np
import pytest

from gocor.data.datasets import Cameras, Pair, homography_pair
from gocor.evaluation.geometry import (
    auc,
    corner_error,
    grid_matches,
    homography_error,
    pose_error,
    relative_pose_error,
)

from ..data.datasets.samples import texture
from .oracles import true_flow

generator = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("errors", "threshold", "area"),
    [
        ([0.0], 5, 1.0),
        ([5.0], 5, 0.5),
        ([10.0], 5, 0.0),
        ([1.0, 3.0], 4, (0.25 + 2 * 0.75 + 1) / 4),  # (0,0) (1,½) (3,1) (4,1)
        ([1.0, np.inf, np.nan], 2, (1 / 6 + 1 / 3) / 2),
    ],
)
def test_area_by_hand(errors, threshold, area):
    assert auc(errors, threshold) == pytest.approx(area)


def test_area_by_fine_steps():
    errors = np.sort(generator.exponential(4, 60))
    x = np.linspace(0, 10, 200001)
    share = np.arange(1, 61) / 60
    curve = np.interp(
        x,
        np.concatenate([[0], errors[errors <= 10], [10]]),
        np.concatenate([[0], share[errors <= 10], [share[errors <= 10][-1]]]),
    )
    assert auc(generator.permutation(errors), 10) == pytest.approx(curve.mean(), abs=1e-4)


def test_area_of_nothing():
    with pytest.raises(ValueError, match="at least one error"):
        auc([], 5)
    with pytest.raises(ValueError, match="threshold must be positive"):
        auc([1.0], 0)


def test_corners():
    shift = np.array([[1, 0, 3.0], [0, 1, 4.0], [0, 0, 1]])
    assert corner_error(shift, np.eye(3), (30, 40)) == pytest.approx(5)
    assert corner_error(2 * shift, shift, (30, 40)) == pytest.approx(0)
    assert corner_error(None, shift, (30, 40)) == np.inf


def test_homography_of_a_flow():
    matrix = np.array([[0.95, 0.08, 3.0], [-0.05, 1.04, 2.0], [1e-4, -5e-5, 1.0]])
    pair = homography_pair("a", texture(0, 120, 160), texture(1, 120, 160), matrix)
    flow = true_flow(pair)
    assert homography_error(pair, flow) < 1e-3
    spoilt = flow.copy()
    spoilt[:40] += generator.uniform(-50, 50, (40, 160, 2))  # a third are outliers
    assert homography_error(pair, spoilt) < 0.5
    assert homography_error(pair, np.full_like(flow, 1e4)) == np.inf
    assert homography_error(pair, np.zeros_like(flow)) > 2


def rotation(axis, degrees):
    return cv2.Rodrigues(np.radians(degrees) * np.asarray(axis, float) / np.linalg.norm(axis))[0]


def test_pose_errors_in_degrees():
    truth = Cameras(np.eye(3), np.eye(3), rotation((1, 2, 3), 40), np.array([1.0, 0, 0]))
    turned = rotation((0, 1, 0), 7) @ truth.rotation
    assert pose_error(turned, truth.translation, truth) == pytest.approx(7)
    assert pose_error(truth.rotation, np.array([np.cos(0.2), np.sin(0.2), 0]), truth) == pytest.approx(np.degrees(0.2))
    assert pose_error(truth.rotation, -3 * truth.translation, truth) == pytest.approx(0, abs=1e-5)
    assert pose_error(None, None, truth) == 180


def test_pose_of_a_flow():
    """A wavy surface seen by two cameras."""
    height, width, focal = 120, 160, 150.0
    matrix = np.array([[focal, 0, 80], [0, focal, 60], [0, 0, 1]])
    y, x = np.mgrid[:height, :width].astype(float)
    depth = 5 + np.sin(x / 20) + np.cos(y / 15)
    points = np.stack([(x - 80) / focal, (y - 60) / focal, np.ones_like(x)], -1) * depth[..., None]
    cameras = Cameras(matrix, matrix, rotation((0.2, 1, 0.1), 4), np.array([-0.4, 0.05, 0.1]))
    moved = points @ cameras.rotation.T + cameras.translation
    ends = np.stack([focal * moved[..., 0] / moved[..., 2] + 80, focal * moved[..., 1] / moved[..., 2] + 60], -1)
    flow = ends - np.stack([x, y], -1)
    picture = texture(0, height, width)
    pair = Pair("a", picture, picture, points=np.zeros((1, 4)), cameras=cameras)
    assert relative_pose_error(pair, flow) < 0.1
    assert relative_pose_error(pair, flow + generator.normal(0, 0.3, flow.shape)) < 5
    assert relative_pose_error(pair, -flow) > 3
    assert relative_pose_error(pair, np.full_like(flow, np.nan)) == 180


def test_matches_are_spread_and_inside():
    flow = np.zeros((100, 200, 2))
    flow[:, 100:] = np.nan
    flow[50:, :50] = 1000
    matches = grid_matches(flow, (100, 200))
    assert (matches[:, 0] < 100).all()
    assert not ((matches[:, 1] >= 50) & (matches[:, 0] < 50)).any()
    assert len(matches) == len(np.unique(matches, axis=0)) > 500
