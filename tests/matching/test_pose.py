"""The relative pose of two cameras, on rendered geometry."""

import numpy as np
import pytest
import torch

from gocor import GOCorError
from gocor.matching.result import MatchResult

from ..reconstruction.scene import camera, camera_matrix, exact_match


def angle(a, b):
    return np.degrees(np.arccos(np.clip(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))


def true_pose(first, second):
    rotation = second.axes @ first.axes.T
    return rotation, second.axes @ (np.float32(first.position) - np.float32(second.position))


def check(found, first, second, degrees):
    rotation, translation = true_pose(first, second)
    turn = found.rotation @ rotation.T
    assert np.degrees(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1))) < degrees
    assert angle(found.translation, translation) < degrees
    assert np.linalg.norm(found.translation) == pytest.approx(1)


@pytest.mark.parametrize(("start", "end"), [(0.0, 0.2), (0.5, 0.4)])
def test_pose_of_exact_matches(start, end):
    result = exact_match(start, end)
    found = result.pose(*(camera_matrix(camera(place)) for place in (start, end)))
    check(found, camera(start), camera(end), 0.1)
    assert found.inliers.shape == (len(result.matches()),)
    assert found.inliers.mean() > 0.95


def test_wrong_matches_are_outliers():
    result = exact_match(0.0, 0.2)
    flow = result.flow.clone()
    flow[:, :, :50] = 40 * torch.rand(2, flow.shape[1], 50, generator=torch.Generator().manual_seed(0))
    spoilt = MatchResult(result.reference, result.query, flow, result.confidence, result.occlusion)
    found = spoilt.pose(camera_matrix(camera(0.0)), camera_matrix(camera(0.2)))
    check(found, camera(0.0), camera(0.2), 0.5)
    wrong = spoilt.matches()[:, 0] < 50
    assert found.inliers[wrong].mean() < 0.2
    assert found.inliers[~wrong].mean() > 0.9


def test_cameras_of_different_focal_lengths():
    """The query is enlarged to one and a half times its size: so are its focal length and the ends of the matches."""
    result = exact_match(0.0, 0.2)
    grid = torch.stack(torch.meshgrid(torch.arange(160.0), torch.arange(120.0), indexing="xy"))
    larger = MatchResult(
        result.reference,
        np.zeros((180, 240, 3), np.uint8),
        1.5 * (grid + result.flow + 0.5) - 0.5 - grid,
        result.confidence,
        result.occlusion,
    )
    first = camera_matrix(camera(0.0))
    found = larger.pose(first, [[1.5 * first[0, 0], 0, 119.5], [0, 1.5 * first[1, 1], 89.5], [0, 0, 1]])
    check(found, camera(0.0), camera(0.2), 0.1)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(2), "K2 must be a 3×3 camera matrix, got an array of shape"),
        ("text", "K2 must be a 3×3 camera matrix of numbers"),
        (np.diag([0, 100, 1]), "K2 must have positive, finite focal lengths, got 0 and 100"),
        (np.diag([100, np.nan, 1]), "K2 must have positive, finite focal lengths"),
        (np.diag([100, 100, 2]), "K2 must have the rows"),
    ],
)
def test_wrong_camera_matrices(matrix, message):
    with pytest.raises(GOCorError, match=message):
        exact_match(0.0, 0.2).pose(np.diag([100, 100, 1]), matrix)


def test_too_few_matches_and_wrong_thresholds():
    result, matrix = exact_match(0.0, 0.2), camera_matrix(camera(0.0))
    with pytest.raises(GOCorError, match="a pose needs 6 matches, there are 4"):
        result.pose(matrix, matrix, max_points=4)
    with pytest.raises(GOCorError, match="threshold must be a positive number of pixels, got 0"):
        result.pose(matrix, matrix, threshold=0)
