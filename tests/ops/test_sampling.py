"""Points of images: against OpenCV, beside holes and at borders."""

import cv2
import numpy as np

from gocor.ops.sampling import is_inside, nearest_pixels, sample_flow

generator = np.random.default_rng(0)


def test_sampling_against_opencv():
    flow = generator.normal(size=(20, 30, 2)).astype(np.float32)
    points = np.column_stack([generator.uniform(0, 29, 200), generator.uniform(0, 19, 200)])
    points[:3] = [[29, 19], [0, 0], [29, 3.5]]
    theirs = cv2.remap(flow, *points.astype(np.float32).T, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE).reshape(
        -1, 2
    )
    assert np.abs(sample_flow(flow, points) - theirs).max() < 0.2  # OpenCV rounds weights to 1/32
    exact = sample_flow(flow, np.array([[3.25, 4.5]]))[0]
    square = flow[4:6, 3:5].astype(float)
    assert np.allclose(
        exact, 0.5 * (0.75 * square[0, 0] + 0.25 * square[0, 1] + 0.75 * square[1, 0] + 0.25 * square[1, 1])
    )


def test_sampling_beside_a_hole_and_outside():
    flow = np.zeros((4, 4, 2))
    flow[2, 2] = np.nan
    assert np.isfinite(sample_flow(flow, np.array([[1.0, 2.0], [3.0, 1.0], [-5.0, 9.0]]))).all()
    assert np.isnan(sample_flow(flow, np.array([[1.5, 2.0]]))).all()
    assert sample_flow(np.ones((1, 1, 2)), np.array([[0.3, 0.2]])).tolist() == [[1, 1]]


def test_the_outermost_pixel_centres_are_inside():
    points = np.array([[0, 0], [3, 2], [3.01, 2], [3, 2.01], [-0.01, 1], [np.nan, 1], [1, np.inf]])
    assert is_inside(points, (3, 4)).tolist() == [True, True, False, False, False, False, False]


def test_the_nearest_pixel_of_a_point_outside_is_at_the_border():
    x, y = nearest_pixels(np.array([[0.4, 1.6], [-7.0, 9.0], [3.6, 0.5]]), (3, 4))
    assert (x.tolist(), y.tolist()) == ([0, 0, 3], [2, 2, 0])
