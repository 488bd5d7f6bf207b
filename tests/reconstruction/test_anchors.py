"""Anchors of both images are found in the other one, with subpixel accuracy."""

import numpy as np
import torch

from gocor.matching.result import MatchResult
from gocor.reconstruction.anchors import find_anchors, nearest_points, transfer_anchors

from .scene import SCENE, SIZE, camera, exact_match, picture, true_flow


def test_anchors_are_apart_and_the_same_every_time():
    anchors = find_anchors(picture(0.0), 200)
    assert 50 < len(anchors) <= 200
    assert (anchors == find_anchors(picture(0.0).copy(), 200)).all()
    distances = np.linalg.norm(anchors[:, None] - anchors[None], axis=2)
    assert distances[~np.eye(len(anchors), dtype=bool)].min() >= 5
    assert (anchors < SIZE[::-1]).all()


def test_an_image_without_corners_has_no_anchors():
    assert len(find_anchors(np.full((40, 60, 3), 90, np.uint8), 100)) == 0


def test_both_directions_agree_with_the_geometry():
    result = exact_match(0.0, 0.1)
    anchors, others = find_anchors(result.reference, 300), find_anchors(result.query, 300)
    forward, backward = transfer_anchors(result, anchors, others, min_confidence=0.5)
    assert len(forward.anchors) > 0.5 * len(anchors)
    assert len(backward.anchors) > 0.5 * len(others)
    x, y = anchors[forward.anchors].T
    np.testing.assert_allclose(forward.points, np.stack([x, y], 1) + result.flow[:, y, x].numpy().T, atol=1e-4)
    truth, _ = true_flow(SCENE, camera(0.1), camera(0.0))  # the other way round
    x, y = others[backward.anchors].T
    error = np.linalg.norm(backward.points - np.stack([x, y], 1) - truth[y, x], axis=1)
    assert np.median(error) < 0.05
    assert np.mean(error < 0.5) > 0.9


def test_uncertain_and_occluded_pixels_are_left_out():
    picture_ = picture(0.0)
    size = picture_.shape[:2]
    confidence, occlusion = torch.ones(size), torch.zeros(size, dtype=torch.bool)
    confidence[:, :50] = 0.4
    occlusion[:60] = True
    result = MatchResult(picture_, picture_, torch.zeros(2, *size), confidence, occlusion)
    anchors = find_anchors(picture_, 300)
    for transfer in transfer_anchors(result, anchors, anchors, min_confidence=0.5):
        found = anchors[transfer.anchors]
        np.testing.assert_allclose(transfer.points, found, atol=1e-6)
        assert len(found) > 20
        assert found[:, 0].min() >= 50
        assert found[:, 1].min() >= 60


def test_nearest_points():
    points = np.array([[3.2, 4.0], [10.0, 10.0]])
    wanted = np.array([[3.0, 4.4], [9.0, 9.0], [0.0, 0.0]])
    assert nearest_points(points, wanted, (12, 12), 1).tolist() == [0, 1, -1]
    assert nearest_points(points[:0], wanted, (12, 12), 1).tolist() == [-1, -1, -1]
