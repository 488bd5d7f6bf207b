"""The demonstration: its views, its ground truth, its measures, and its claim."""

import functools

import cv2
import numpy as np
import pytest
import torch

from gocor.demo import facade
from gocor.demo import study as demo
from gocor.demo.figure import column_titles, draw_study

study = functools.cache(demo.study)


def grey(picture):
    """Grey values without illumination: mean 0 and standard deviation 1 in every neighbourhood."""
    lightness = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32)
    centred = lightness - cv2.GaussianBlur(lightness, (0, 0), 20)
    return centred / np.sqrt(cv2.GaussianBlur(centred**2, (0, 0), 20))


def agreement(views, homography):
    """Correlation of the reference with the query warped to it, where both are visible."""
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size = (facade.WIDTH, facade.HEIGHT)
    pulled = cv2.warpPerspective(grey(views.query), homography, size, flags=flags)
    seen = cv2.warpPerspective(np.ones(size[::-1], np.float32), homography, size, flags=flags) == 1
    return np.corrcoef(pulled[seen], grey(views.reference)[seen])[0, 1]


def test_rendering_is_deterministic():
    first, again, other = study().views, facade.render_views(), facade.render_views(1)
    for name in ("reference", "query", "homography", "windows"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert first.reference.shape == first.query.shape == (384, 480, 3)
    assert (first.reference != other.reference).any()


def test_homography_maps_reference_to_query():
    views = study().views
    assert agreement(views, views.homography) > 0.95
    for dx, dy in ((2, 0), (-2, 0), (0, 2), (0, -2)):
        moved = np.array([[1, 0, dx], [0, 1, dy], [0, 0, 1]]) @ views.homography
        assert agreement(views, moved) < agreement(views, views.homography) - 0.05


def test_true_matches_are_those_of_the_homography():
    views = study().views
    pixels = demo.to_pixels(facade.grid(demo.COLUMNS, demo.ROWS))
    expected = cv2.perspectiveTransform(pixels.reshape(-1, 1, 2), views.homography).reshape(pixels.shape)
    np.testing.assert_allclose(demo.to_pixels(demo.true_matches(views.homography)), expected, atol=1e-9)


def test_window_centres():
    views = study().views
    lightness = cv2.cvtColor(views.reference, cv2.COLOR_RGB2GRAY)
    x, y = np.rint(views.windows).astype(int).T
    inner = (x > 20) & (x < facade.WIDTH - 20) & (y > 30) & (y < facade.HEIGHT - 40)
    frame, glass = (lightness[y[inner] + 9, x[inner] + dx].mean() for dx in (17, 7))
    assert frame > glass + 80


def test_descriptors_are_normalised():
    features = demo.describe(study().views.reference)
    channels = sum(points for _, points, _ in demo.RINGS) * (demo.ORIENTATIONS + 3)
    assert features.shape == (1, channels, 32, 40)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(1, 32, 40))


def test_measures_of_known_volumes():
    matches = facade.grid(demo.COLUMNS, demo.ROWS)  # nothing moves
    perfect = np.eye(32 * 40).reshape(-1, 32, 40)
    assert demo.measure("perfect", perfect, matches, (3, 4)) == demo.Measure("perfect", 0.0, 0.0, 0.0, 1.0)
    wrong = demo.measure("wrong", np.roll(perfect, 10, axis=0) + 0.5 * perfect, matches, (3, 4))
    assert wrong.error == pytest.approx(10 * demo.CELL)
    assert wrong.ratio == wrong.median_ratio == pytest.approx(2.0)
    assert wrong.hits == 0
    assert demo.measure("negative", -perfect - 1, matches, (3, 4)).ratio == np.inf


def test_gocor_finds_what_plain_correlation_confuses():
    plain, after_3 = study().measures[0], study().measures[4]
    assert after_3.name == "GOCor, 3 iterations"
    assert plain.ratio > 0.95  # ambiguous
    assert after_3.error <= demo.HIT_RADIUS * demo.CELL
    assert after_3.ratio < 0.6
    assert after_3.median_ratio < plain.median_ratio - 0.2
    assert after_3.hits > plain.hits + 0.1


def test_figure_is_a_readable_png():
    figure = cv2.imdecode(np.frombuffer(draw_study(study()), np.uint8), cv2.IMREAD_COLOR)
    assert 1400 <= figure.shape[1] <= 1600
    assert len(column_titles()) == 6
