"""Motions of the camera, their smoothing, and the part of the frames that stays visible."""

from itertools import pairwise

import cv2
import numpy as np
import pytest
import torch

from gocor.matching import MatchResult
from gocor.ops.homography import project
from gocor.video import Stabilization
from gocor.video.stabilize import MIN_ZOOM, corrections, crop_zoom, fit_motion, magnified, move

SIZE = HEIGHT, WIDTH = (60, 90)


def similarity(x=0.0, y=0.0, angle=0.0, scale=1.0):
    c, s = scale * np.cos(angle), scale * np.sin(angle)
    return np.array([[c, -s, x], [s, c, y], [0, 0, 1]])


def result_of(matrix, confidence=1.0, outliers=0):
    """A pair whose flow is that of a matrix, but for the first columns, which move on their own."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    mapped = project(matrix, np.stack([x, y], -1).reshape(-1, 2)).reshape(HEIGHT, WIDTH, 2)
    flow = torch.from_numpy((mapped - np.stack([x, y], -1)).transpose(2, 0, 1).astype(np.float32))
    flow[:, :, :outliers] = torch.tensor([7.0, 9.0]).view(2, 1, 1)
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    sure = torch.full(SIZE, float(confidence))
    return MatchResult(picture, picture, flow, sure, torch.zeros(SIZE, dtype=torch.bool))


@pytest.mark.parametrize("motion", ["similarity", "homography"])
def test_the_motion_of_most_matches_is_found(motion):
    matrix = similarity(2.5, -1.5, 0.03, 1.02)
    if motion == "homography":
        matrix[2, 0] = 1e-4
    found = fit_motion(result_of(matrix, outliers=30), motion)
    np.testing.assert_allclose(found, matrix, atol=2e-2)


def test_no_motion_is_known_without_confident_matches():
    assert np.isnan(fit_motion(result_of(np.eye(3), confidence=0.3), "similarity")).all()


def jitter(count=60, seed=0, pan=(0.0, 0.0)):
    """Poses of a shaky camera, and its motions."""
    rng = np.random.default_rng(seed)
    poses = [similarity(*(rng.normal(0, 3, 2) + np.multiply(pan, i)), rng.normal(0, 0.02)) for i in range(count)]
    return poses, np.array([b @ np.linalg.inv(a) for a, b in pairwise(poses)])


def shake(places):
    """Size of the accelerations of places `(N, 2)`."""
    return np.linalg.norm(np.diff(places, 2, axis=0), axis=1).mean()


def test_smoothing_removes_shake_and_keeps_a_pan():
    poses, motions = jitter(pan=(4.0, 1.0))
    fixed = corrections(motions, 6, SIZE)
    centre = np.array([[WIDTH / 2, HEIGHT / 2]])
    before = np.array([project(pose, centre)[0] for pose in poses])
    after = np.array([project(fix @ pose, centre)[0] for fix, pose in zip(fixed, poses, strict=True)])
    assert shake(after[3:-3]) < 0.15 * shake(before[3:-3])
    speed = np.diff(after, axis=0)[5:-5].mean(0)
    np.testing.assert_allclose(speed, (4.0, 1.0), atol=0.5)
    assert np.abs(after - before).max() < 15  # 60 frames of the pan are 240 pixels


def test_a_steady_pan_is_not_changed():
    motions = np.tile(similarity(5.0, -2.0), (40, 1, 1))
    np.testing.assert_allclose(corrections(motions, 5, SIZE), np.tile(np.eye(3), (41, 1, 1)), atol=1e-9)


def test_parts_between_unknown_motions_are_smoothed_on_their_own():
    _, motions = jitter(30)
    cut = motions.copy()
    cut[14] = np.nan
    both = corrections(cut, 4, SIZE)
    np.testing.assert_allclose(both[:15], corrections(motions[:14], 4, SIZE))
    np.testing.assert_allclose(both[15:], corrections(motions[15:], 4, SIZE))
    alone = corrections(np.full((1, 3, 3), np.nan), 4, SIZE)
    np.testing.assert_array_equal(alone, np.tile(np.eye(3), (2, 1, 1)))


def test_cropped_frames_have_no_border():
    _, motions = jitter(20)
    matrices = corrections(motions, 5, SIZE)
    zoom = crop_zoom(matrices, SIZE)
    assert MIN_ZOOM < zoom < 1
    white = np.full((*SIZE, 3), 255, np.uint8)
    assert all((move(white, matrix) == 255).all() for matrix in magnified(matrices, zoom, SIZE))
    larger = magnified(matrices, min(1, zoom + 0.05), SIZE)
    assert not all((move(white, matrix) == 255).all() for matrix in larger)
    assert crop_zoom(np.tile(np.eye(3), (3, 1, 1)), SIZE) == 1
    assert crop_zoom(similarity(WIDTH)[None], SIZE) == MIN_ZOOM


def test_frames_move_by_their_matrix():
    picture = np.zeros((*SIZE, 3), np.uint8)
    cv2.circle(picture, (30, 20), 3, (255, 255, 255), -1)
    rows, columns = np.nonzero(move(picture, similarity(10, -5)).any(2))
    assert (columns.mean(), rows.mean()) == (40, 15)


def test_wrong_options():
    for options, message in (
        ({"motion": "affine"}, "motion must be one of"),
        ({"border": "blur"}, "border must be one of"),
        ({"smooth": 0}, "smooth must be at least 1"),
        ({"smooth": 10**12}, "smooth must be at most 10,000 frames"),
    ):
        with pytest.raises(ValueError, match=message):
            Stabilization(**options)
