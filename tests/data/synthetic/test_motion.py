"""Motions, compared with independent computations."""

import cv2
import numpy as np
import pytest
import torch

from gocor.data.synthetic import PRESETS, Motion
from gocor.data.synthetic.basis import COEFFICIENTS, PLATE, basis_at, split_tf32
from gocor.data.synthetic.motion import Frame, WarpGrid, adjugate, corners_of, corners_to_matrix, draw_warps

PUBLISHED = PRESETS["static-published"].motions


def draw(motions, count=4000, frame=None, seed=0):
    return draw_warps(motions, count, frame or Frame(241, 241), np.random.default_rng(seed))


def in_frame(warps, frame=None):
    """The motions' matrices, from coordinates n to coordinates n."""
    return np.linalg.inv((frame or Frame(241, 241)).to_pixels) @ warps.matrix


def test_thin_plate_spline_agrees_with_scipy():
    interpolate = pytest.importorskip("scipy.interpolate")
    rng = np.random.default_rng(0)
    extent = (1.4, 1.0)
    ys, xs = np.meshgrid([-1, 0, 1], [-1.4, 0, 1.4], indexing="ij")
    controls, moves = np.stack([xs.ravel(), ys.ravel()], -1), rng.normal(0, 0.2, (9, 2))
    points = rng.uniform(-1.4, 1.4, (50, 2))
    theirs = interpolate.RBFInterpolator(controls, moves, kernel="thin_plate_spline", degree=1)(points)
    ours = basis_at(points, extent)[:, : PLATE**2] @ moves
    assert np.abs(ours - theirs).max() < 1e-9


def test_cubic_spline_agrees_with_scipy():
    interpolate = pytest.importorskip("scipy.interpolate")
    rng = np.random.default_rng(0)
    coefficients, points = rng.normal(size=(7, 7)), rng.uniform(-1, 1, (40, 2)) * (1.0, 0.7)
    knots = np.arange(-3, 8) * 0.5 - 1  # four cells over [-1, 1]
    expected = [
        interpolate.BSpline(knots, interpolate.BSpline(knots, coefficients, 3)(y / 0.7), 3)(x) for x, y in points
    ]
    ours = basis_at(points, (1.0, 0.7))[:, PLATE**2 :] @ coefficients.ravel()
    assert np.abs(ours - expected).max() < 1e-9


@pytest.mark.parametrize("extent", [(1.0, 1.0), (1.5, 1.0)])
def test_corner_moves_agree_with_opencv(extent):
    moves = np.random.default_rng(0).uniform(-0.6, 0.6, (20, 4, 2))
    ours = corners_to_matrix(moves, extent)
    for matrix, move in zip(ours / ours[:, 2:, 2:], moves, strict=True):
        corners = corners_of(extent)
        theirs = cv2.getPerspectiveTransform(corners.astype(np.float32), (corners + move).astype(np.float32))
        assert np.abs(matrix - theirs).max() < 1e-4


def test_adjugate_is_the_inverse_up_to_a_factor():
    matrices = np.random.default_rng(0).normal(size=(5, 2, 3, 3))
    expected = np.linalg.inv(matrices) * np.linalg.det(matrices)[..., None, None]
    assert np.allclose(adjugate(matrices), expected)


def test_no_motion_folds_its_image():
    """The depth is positive everywhere in the image, even for extreme corner moves."""
    frame = Frame(60, 90)
    for motions in ((Motion(corners=0.66),), (Motion(corners=0.66, inverse_corners=True),)):
        matrices = draw(motions, 20000, frame).matrix
        corners = np.concatenate([corners_of(frame.extent), np.ones((4, 1))], 1)
        depth = np.einsum("bj,cj->bc", matrices[:, 2], corners)
        assert depth.min() >= 0.1


def test_published_mix():
    shares = np.bincount(draw(PUBLISHED, 20000).kind) / 20000
    assert np.abs(shares - [0.25, 0.25, 0.5]).max() < 0.015


def test_published_affine():
    warps = draw(PUBLISHED[:1])
    matrices = in_frame(warps)
    assert not warps.coefficients.any()
    assert np.allclose(matrices[:, 2], (0, 0, 1))
    scales = np.linalg.svd(matrices[:, :2, :2])[1]
    assert 0.75 <= scales.min() < 0.76
    assert 1.24 < scales.max() <= 1.25
    assert scales.mean() == pytest.approx(1, abs=0.01)
    # det = λ₁λ₂, each uniform: variance of the product of independent uniforms.
    assert np.linalg.det(matrices[:, :2, :2]).var() == pytest.approx(2 * 0.5**2 / 12 + (0.5**2 / 12) ** 2, rel=0.1)
    shift = matrices[:, :2, 2]
    assert 0.245 < np.abs(shift).max() <= 0.25
    assert shift.std() == pytest.approx(0.5 / np.sqrt(12), rel=0.05)
    # R(α)R(-φ)diag R(φ): the rotation of the polar decomposition is α.
    u, _, v = np.linalg.svd(matrices[:, :2, :2])
    turn = u @ v
    angle = np.rad2deg(np.arctan2(turn[:, 1, 0], turn[:, 0, 0]))
    assert 14.8 < np.abs(angle).max() <= 15 + 1e-9
    assert angle.std() == pytest.approx(30 / np.sqrt(12), rel=0.05)


def test_published_thin_plate():
    warps = draw(PUBLISHED[1:2])
    moves = warps.coefficients[..., : PLATE**2]
    assert np.allclose(in_frame(warps), np.eye(3))
    assert not warps.coefficients[..., PLATE**2 :].any()
    assert moves.std() == pytest.approx(0.2, rel=0.02)
    assert moves.mean() == pytest.approx(0, abs=0.005)
    assert (moves**4).mean() / (moves**2).mean() ** 2 == pytest.approx(3, abs=0.1)


def test_published_homography():
    """Corners move by integers from -80 to 79, in units of 1/240 of the side."""
    warps = draw(PUBLISHED[2:])
    forward = adjugate(in_frame(warps))
    corners = np.concatenate([corners_of((1, 1)), np.ones((4, 1))], 1)
    moved = np.einsum("bij,cj->bci", forward, corners)
    moves = 120 * (moved[..., :2] / moved[..., 2:] - corners_of((1, 1)))
    halved = (
        np.abs(moves - np.rint(moves)).max((1, 2)) > 1e-6
    )  # not integers: halved because the image would have folded
    assert 0.05 < halved.mean() < 0.1
    whole = np.rint(moves[~halved])
    assert (whole.min(), whole.max()) == (-80, 79)
    assert whole.std() == pytest.approx(160 / np.sqrt(12), rel=0.05)


@pytest.mark.parametrize("name", PRESETS)
def test_small_strength_means_small_motion(name):
    motions = tuple(Motion(**{**vars(m), "strength": (0.0, 0.0)}) for m in PRESETS[name].motions)
    warps = draw(motions, 200)
    assert np.allclose(in_frame(warps), np.eye(3), atol=0.02)  # corner moves are rounded down to a step
    assert not warps.coefficients.any()


def test_stereo_moves_along_rows_only():
    motions = tuple(m for m in PRESETS["static"].motions if m.horizontal)
    frame = Frame(40, 60)
    warps = draw(motions, 50, frame)
    target = WarpGrid(frame, torch.device("cpu"))(
        torch.from_numpy(warps.matrix).float(), torch.from_numpy(warps.coefficients).float()
    )
    assert (target[:, 1] - torch.arange(40.0)[:, None]).abs().max() < 1e-4
    assert (target[:, 0] - torch.arange(60.0)).abs().max() > 3


def test_the_grid_is_the_sum_of_the_basis_functions():
    frame = Frame(20, 31)
    warps = draw((Motion(rotation=30, corners=0.3, plate=0.2, bend=0.1),), 3, frame)
    target = WarpGrid(frame, torch.device("cpu"))(
        torch.from_numpy(warps.matrix).float(), torch.from_numpy(warps.coefficients).float()
    )
    for y, x in [(0, 0), (19, 30), (4, 17)]:
        n = (np.array([x, y]) - frame.centre) / frame.half
        bent = n + warps.coefficients @ basis_at(n, frame.extent)
        mapped = np.einsum("bij,bj->bi", warps.matrix, np.concatenate([bent, np.ones((3, 1))], 1))
        assert np.abs(mapped[:, :2] / mapped[:, 2:] - target[:, :, y, x].numpy()).max() < 1e-4


def test_split_numbers_sum_up_exactly():
    values = torch.randn(1000)
    high, low = split_tf32(values)
    assert torch.equal(high + low, values)
    assert (high.view(torch.int32) & 0x1FFF == 0).all()
    assert (low.abs() <= values.abs() * 2.0**-10).all()


def test_a_split_product_survives_rounding_to_tf32():
    """As a GPU with TF32: both factors are rounded to 10 fraction bits."""

    def rounded(values):
        return ((values.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)

    basis, flat = torch.randn(COEFFICIENTS, 200), torch.randn(4, COEFFICIENTS)
    basis_high, basis_low = split_tf32(basis)
    high, low = split_tf32(flat)
    stacked = rounded(torch.cat([high, high, low], 1)) @ rounded(torch.cat([basis_high, basis_low, basis_high]))
    exact = flat.double() @ basis.double()
    assert (stacked - exact).abs().max() < 2e-5
    assert (rounded(flat) @ rounded(basis) - exact).abs().max() > 1e-3
