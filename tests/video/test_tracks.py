"""Tracks follow the flow, end where it is occluded, and new ones fill gaps."""

import numpy as np
import pytest
import torch

from gocor.matching import MatchResult
from gocor.video.tracks import MIN_CONFIDENCE, TRAIL, Points, Tracker, Trails

HEIGHT, WIDTH = 60, 90


def result(shift=(0.0, 0.0), occluded=None, confidence=None):
    """A pair with a constant flow, an occluded rectangle (rows and columns as slices), and a confidence map."""
    flow = torch.tensor(shift).view(2, 1, 1).expand(2, HEIGHT, WIDTH).clone()
    occlusion = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    if occluded:
        occlusion[occluded] = True
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    sure = torch.ones(HEIGHT, WIDTH) if confidence is None else confidence
    return MatchResult(picture, picture, flow, sure, occlusion)


def test_points_begin_apart_from_each_other_and_follow_the_flow():
    tracker = Tracker(54)
    start = tracker.begin(result((2.5, -1.25)))
    assert len(start.ids) == 54
    distances = np.linalg.norm(start.places[:, None] - start.places, axis=2) + 1e9 * np.eye(54)
    assert distances.min() >= 5  # half a cell
    moved = tracker.advance(result((2.5, -1.25)))
    kept = np.isin(start.ids, moved.ids)
    np.testing.assert_allclose(moved.places, start.places[kept] + (2.5, -1.25))
    left = start.places[~kept] + (2.5, -1.25)
    assert ((left < 0) | (left > (WIDTH - 1, HEIGHT - 1))).any(1).all()


def test_flow_is_interpolated_between_pixels():
    ramp = result()
    ramp.flow[0] = torch.arange(WIDTH) / 10
    tracker = Tracker(1, Points(np.array([7]), np.array([[20.5, 30.25]])), 8)
    np.testing.assert_allclose(tracker.advance(ramp).places, [[20.5 + 2.05, 30.25]], rtol=1e-6)


def test_tracks_end_where_they_are_occluded_or_not_confident():
    tracker = Tracker(54)
    start = tracker.begin(result())
    after = tracker.advance(result(occluded=(slice(None), slice(0, 30))))
    assert set(after.ids) == set(start.ids[start.places[:, 0] > 29.5])
    unsure = torch.ones(HEIGHT, WIDTH)
    unsure[:20] = MIN_CONFIDENCE - 0.01
    after = tracker.advance(result(confidence=unsure))
    assert after.places[:, 1].min() > 19.5


def test_new_tracks_fill_gaps_under_new_numbers():
    tracker = Tracker(54)
    start = tracker.begin(result())
    hole = (slice(None), slice(0, 30))
    tracker.advance(result(occluded=hole))
    still_hidden = tracker.begin(result(occluded=hole))
    assert still_hidden.places[:, 0].min() > 29.5
    filled = tracker.begin(result())
    new = filled.ids > start.ids.max()
    assert new.sum() == 18
    assert filled.places[new, 0].max() < 30
    assert len(filled.ids) == len(set(filled.ids)) == 54


def test_there_are_never_more_points_than_asked_for():
    tracker = Tracker(10)
    for shift in ((5.0, 0.0), (-3.0, 4.0), (0.0, -6.0), (7.0, 7.0)):
        assert len(tracker.begin(result(shift)).ids) <= 10
        tracker.advance(result(shift))
    with pytest.raises(ValueError, match="tracks must be at least 1"):
        Tracker(0)


def test_trails_show_the_last_places_of_tracks_that_go_on():
    trails = Trails()
    black = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for x in range(0, 4 * TRAIL, 2):
        ended = [[x, 50.0]] if x < 2 * TRAIL else np.zeros((0, 2))
        trails.add(Points(np.arange(1 + len(ended)), np.concatenate([[[x, 20.0]], ended])))
    drawn = trails.draw(black).any(2)
    assert not black.any()
    assert not drawn[40:].any()
    columns = np.flatnonzero(drawn[20])
    first = 4 * TRAIL - 2 * TRAIL
    assert abs(columns.min() - first) <= 2
    assert drawn[20, first : 4 * TRAIL - 2].all()
