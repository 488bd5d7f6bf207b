"""Alignment: homographies in both directions, what they are fitted to, and what they do for images far apart."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

import gocor
from gocor.matching.alignment import match_wide_baseline, search
from gocor.matching.alignment.search import AlignmentSearch, _from_other_side, fit_homography
from gocor.matching.alignment.settings import DEFAULT_ALIGNMENT, AlignmentSettings
from gocor.matching.alignment.views import View
from gocor.matching.alignment.warping import warp_perspective
from gocor.matching.alignment.wide import match_aligned
from gocor.matching.api import match_tensors
from gocor.matching.images import to_batch
from gocor.matching.options import MatchOptions
from gocor.matching.planar import Planar
from gocor.models import create_model, load_model
from gocor.ops.homography import jacobian, project, project_map
from gocor.ops.warp import pixel_grid
from tests.models.test_own_network import OwnNetwork
from tests.test_assets import PHOTOS

pytestmark = pytest.mark.long

SIDE = 256
MATRIX = np.array([[0.9, -0.3, 20.0], [0.25, 1.1, -8.0], [4e-4, -2e-4, 1.0]])


def test_maps_and_points_go_through_a_homography_alike():
    points = np.array([[0.0, 0], [30, 10], [59, 39]])
    mapped = project_map(MATRIX, pixel_grid(40, 60))[0].permute(1, 2, 0).numpy()
    expected = cv2.perspectiveTransform(points[None], MATRIX)[0]
    np.testing.assert_allclose(project(MATRIX, points), expected)
    np.testing.assert_allclose(mapped[[0, 10, 39], [0, 30, 59]], expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(project(np.linalg.inv(MATRIX), expected), points, atol=1e-9)
    several = np.stack([np.eye(3), MATRIX])
    torch.testing.assert_close(project_map(several, pixel_grid(40, 60))[1], project_map(MATRIX, pixel_grid(40, 60))[0])
    step = 1e-5
    moved = [project(MATRIX, points + np.array(d) * step) - expected for d in ((1, 0), (0, 1))]
    np.testing.assert_allclose(jacobian(MATRIX, points), np.stack(moved, -1) / step, rtol=1e-4)


def test_an_image_seen_through_a_shift(device):
    image = torch.rand(1, 3, 20, 30, device=device) * 255
    torch.testing.assert_close(warp_perspective(image, np.eye(3), (20, 30)), image, rtol=0, atol=1e-3)
    shifted = warp_perspective(image, np.array([[1.0, 0, 4], [0, 1, -3], [0, 0, 1]]), (20, 30))
    torch.testing.assert_close(shifted[..., 3:, :-4], image[..., :-3, 4:], rtol=0, atol=1e-3)
    assert (shifted[..., :3, :] == 127.5).all()
    assert (shifted[..., -4:] == 127.5).all()


def test_a_smaller_image_has_no_aliases():
    board = ((torch.arange(64)[:, None] + torch.arange(64)) % 2 * 255.0).expand(1, 3, 64, 64)
    small = warp_perspective(board, np.diag([4.0, 4.0, 1.0]), (16, 16))
    torch.testing.assert_close(small, torch.full_like(small, 127.5), rtol=0, atol=1.0)


@pytest.mark.parametrize("before", [np.eye(3), np.array([[0.0, -1, 255], [1, 0, 0], [0, 0, 1]])])
def test_a_homography_is_fitted_to_the_consistent_points(before):
    """On top of the one that the query is seen through already."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 255, (400, 2))
    targets, error = project(MATRIX, points), np.zeros(400)
    targets[100:] = rng.uniform(0, 255, (300, 2))
    error[100:] = np.where(rng.random(300) < 0.3, 1.0, 50.0)  # some of the wrong ones are consistent
    matrix = fit_homography(View(before, points, targets, error, 0.0), SIDE)
    expected = before @ MATRIX
    np.testing.assert_allclose(matrix, expected / expected[2, 2], rtol=1e-3, atol=1e-3)
    assert fit_homography(View(before, points, targets, error + 20, 0.0), SIDE) is None


def test_mirrored_and_extreme_homographies_are_refused():
    points = np.random.default_rng(0).uniform(0, 255, (100, 2))
    for matrix in (np.diag([-1.0, 1, 1]), np.diag([8.0, 8, 1]), np.diag([1.0, 0.1, 1])):
        assert fit_homography(View(np.eye(3), points, project(matrix, points), np.zeros(100), 0.0), SIDE) is None


def test_of_answers_that_are_far_apart_the_most_exact_counts(monkeypatch):
    def view(shift, support):
        matrix = np.array([[1.0, 0, shift], [0, 1, 0], [0, 0, 1]])
        return View(matrix, np.full((4, 2), 128.0), np.full((4, 2), 128.0), np.zeros(4), support)

    asked = []
    monkeypatch.setattr(AlignmentSearch, "detail_agreement", lambda self, view: asked.append(view) or view.matrix[0, 2])
    aligner = object.__new__(AlignmentSearch)
    aligner.settings, aligner.matcher = DEFAULT_ALIGNMENT, SimpleNamespace(side=SIDE)
    near, other, weak = view(3, 0.9), view(100, 0.4), view(200, 0.2)
    assert aligner.choose([view(0, 1.0), near, weak]).support == 1  # one answer, twice, and one without support
    assert not asked
    assert aligner.choose([other, weak, near, view(0, 1.0)]) is other
    assert len(asked) == 2


class Still(torch.nn.Module):
    """Sees no motion between images of the same shape."""

    def forward(self, reference, query, max_size=None):
        grid = pixel_grid(*reference.shape[2:])
        assert max_size is None or min(max(reference.shape[2:]), max(query.shape[2:])) <= max_size
        scale = query.shape[3] / reference.shape[3]
        return (grid + 0.5) * scale - 0.5 - grid


@pytest.mark.parametrize(("zoom", "options"), [(1.0, {}), (2.5, {}), (2.5, {"max_size": 30})])
def test_without_further_motion_the_flow_is_the_homography(zoom, options):
    matrix = np.diag([zoom, zoom, 1]) @ MATRIX
    reference, query = torch.zeros(1, 3, 40, 60), torch.rand(1, 3, 50, 70)
    forward, backward = (found.flow for found in match_aligned(Still(), reference, query, matrix[None], **options))
    points = np.array([[0.0, 0], [30, 10], [59, 39], [25, 20]])
    x, y = points.astype(int).T
    there = np.clip(project(matrix, points), [-35, -25], [105, 75])  # not farther out than half the query
    np.testing.assert_allclose(forward[0, :, y, x].T.double().numpy() + points, there, rtol=1e-4, atol=1e-2)
    x, y = (points * 0.8).astype(int).T
    there = np.stack([x, y], 1).astype(float)
    known = ((project(np.linalg.inv(matrix), there) >= 0) & (project(np.linalg.inv(matrix), there) < [60, 40])).all(1)
    assert known.any()
    back = backward[0, :, y, x].T.double().numpy() + there
    np.testing.assert_allclose(back[known], project(np.linalg.inv(matrix), there)[known], rtol=1e-3, atol=2e-2)


def test_pixels_beyond_the_horizon_lead_nowhere():
    matrix = np.linalg.inv(np.array([[1.0, 0, 0], [0, 1, 0], [-1 / 30, 0, 1]]))
    _, backward = match_aligned(Still(), torch.zeros(1, 3, 40, 60), torch.rand(1, 3, 40, 60), matrix[None])
    assert backward.flow[..., 31:].isinf().all()
    assert backward.flow[..., :29].isfinite().all()


@pytest.fixture(scope="module")
def photo():
    image = cv2.cvtColor(cv2.imread(str(PHOTOS / "reference.jpg")), cv2.COLOR_BGR2RGB)
    return cv2.resize(image, (320, 320 * image.shape[0] // image.shape[1]), interpolation=cv2.INTER_AREA)


def test_a_turned_photo(photo, device):
    turned = np.rot90(photo).copy()  # a column x of the photo is the row width − 1 − x of this
    height, width = photo.shape[:2]
    network = load_model("glunet-gocor", device=device)
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    true = np.stack([y - x, width - 1 - x - y])
    errors = []
    for align in (True, False):
        result = gocor.match(photo, turned, network, min_size=0, align=align)
        errors.append(np.linalg.norm(result.flow.numpy() - true, axis=0))
        if align:
            assert (result.confidence > 0.3).float().mean() > 0.8
    assert np.median(errors[0]) < 1
    assert np.median(errors[1]) > 20


@torch.inference_mode()
def test_exactness_tells_the_right_place_from_others(photo):
    image = torch.from_numpy(photo).permute(2, 0, 1)[None].float()
    search = AlignmentSearch(load_model("glunet-gocor", device="cpu"), image, image, DEFAULT_ALIGNMENT)
    upside_down = np.array([[-1.0, 0, 255], [0, -1, 255], [0, 0, 1]])
    right, wrong = search.matcher.match([(0, np.eye(3)), (0, upside_down)])
    assert search.detail_agreement(right) > 0.3
    assert search.detail_agreement(wrong) < 0.03


def test_close_images_are_matched_as_they_are(photo, monkeypatch):
    unchanged = lambda reference, query, flow, _: Planar(flow, flow.new_zeros(len(flow), 1, *flow.shape[2:]))  # noqa: E731
    monkeypatch.setattr("gocor.matching.alignment.wide.prefer_homography", unchanged)
    network = load_model("glunet-gocor", device="cpu")
    moved = np.roll(photo, 4, 1)
    results = [gocor.match(photo, moved, network, min_size=0, align=align).flow for align in (None, False)]
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("supports", "rounds"),
    [((0.3, 0.303), 1), ((0.3, 0.32, 0.323), 2), ((0.05, 0.0501, 0.0502, 0.0503, 0.0504), 4), ((0.3, 0.29), 1)],
)
def test_close_images_are_not_refined_for_a_small_gain(supports, rounds, monkeypatch):
    moving = np.array([[1.0, 0, 64], [0, 1, 0], [0, 0, 1]])
    monkeypatch.setattr(search, "fit_homography", lambda *_: moving)
    points = np.zeros((1, 2))
    views = iter([View(moving, points, points, points[:, 0], support) for support in supports])
    calls = []
    matcher = SimpleNamespace(
        settings=DEFAULT_ALIGNMENT, side=256, match=lambda starts: [calls.append(1) or next(views) for _ in starts]
    )
    (best,) = search.refine(matcher, [next(views)])
    assert best.support == max(supports)
    assert len(calls) == rounds


def test_batches_and_networks_that_cannot(device):
    network = create_model("glunet-gocor-tiny").eval().to(device)
    reference, query = torch.rand(2, 3, 64, 80, device=device) * 255, torch.rand(2, 3, 70, 60, device=device) * 255
    both = match_wide_baseline(network, reference, query)
    assert both[0].shape == (2, 2, 64, 80)
    assert both[1].shape == (2, 2, 70, 60)
    single = match_wide_baseline(network, reference[1:], query[1:])
    torch.testing.assert_close(both[0][1:], single[0], rtol=1e-3, atol=1e-2)
    with pytest.raises(ValueError, match="pwcnet-gocor-tiny gives no coarse matches"):
        match_tensors(create_model("pwcnet-gocor-tiny"), reference, query, MatchOptions(align=True))


def test_pairs_and_starts_share_the_calls_of_the_network(photo):
    """Three pairs, each rotated differently, are aligned in one batch, in few more calls than the hardest alone."""
    network = OwnNetwork().eval()
    square = np.ascontiguousarray(photo[:160, :160])
    queries = [np.ascontiguousarray(np.rot90(square, turns)) for turns in (0, 1, 2)]
    reference, query = to_batch([square] * 3, network), to_batch(queries, network)
    calls = []
    original = network.coarse_features
    network.coarse_features = lambda image: calls.append(len(image)) or original(image)
    settings = AlignmentSettings(views_per_batch_cpu=64)
    both = match_wide_baseline(network, reference, query, alignment=settings)
    together, most = len(calls), 0
    assert max(calls) >= 2 * len(settings.turns)  # all rotations of two pairs
    x, y = np.meshgrid(np.arange(160), np.arange(160))
    for pair, true in enumerate(([0 * x, 0 * y], [y - x, 159 - x - y], [159 - 2 * x, 159 - 2 * y])):
        calls.clear()
        single = match_wide_baseline(network, reference[[pair]], query[[pair]], alignment=settings)
        most = max(most, len(calls))
        for flows, alone in zip(both[:2], single[:2], strict=True):
            torch.testing.assert_close(flows[[pair]], alone, rtol=1e-4, atol=1e-2)
        assert np.median(np.linalg.norm(both[0][pair].numpy() - np.stack(true), axis=0)) < 1
    assert together <= most + 2
    small = AlignmentSettings(views_per_batch_cpu=2)
    torch.testing.assert_close(match_wide_baseline(network, reference, query, alignment=small)[0], both[0])
    calls.clear()
    AlignmentSearch(network, reference, query, small).run()
    assert max(calls) <= 3  # the three references, then two views at a time


def test_the_learnt_confidence_follows_the_flow_of_aligned_and_close_pairs():
    """A batch of a rotated and a close pair has the confidences that the network predicts of the images it matched."""
    network = create_model("recurrent-gocor-tiny").eval()
    reference, query = 255 * torch.rand(2, 2, 3, 48, 64)
    turn = np.array([[-1.0, 0, 63], [0, -1, 47], [0, 0, 1]])
    found, _ = match_aligned(network, reference, query, np.stack([turn, turn]), confidence=True, min_size=0)
    expected = network.predict(reference, query.flip(2, 3), min_size=0)
    torch.testing.assert_close(found.confidence, expected.confidence, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.visibility, expected.visibility, rtol=1e-3, atol=1e-3)
    plain = match_wide_baseline(network, reference, query, confidence=True, min_size=0)
    assert plain.confidence.shape == plain.visibility.shape == (2, 1, 48, 64)
    assert match_wide_baseline(network, reference, query, min_size=0).confidence is None


@torch.inference_mode()
def test_a_close_up_is_found_from_the_other_side():
    """The query shows a quarter of the reference's width."""
    network = load_model("recurrent-gocor", device="cpu")
    whole = cv2.cvtColor(cv2.imread(str(PHOTOS / "reference.jpg")), cv2.COLOR_BGR2RGB)
    part = cv2.resize(whole[120:220, 250:400], (300, 200), interpolation=cv2.INTER_CUBIC)
    true = np.array([[2.0, 0, -500 + 0.5], [0, 2, -240 + 0.5], [0, 0, 1]])
    images = [torch.from_numpy(image).permute(2, 0, 1)[None].float() for image in (whole, part)]
    search = AlignmentSearch(
        network, *images, AlignmentSettings(shifts=(), turns=(), tilts=(), distant_starts=1, rounds=2)
    )
    assert search.homography(0) is None
    search.run()
    points = np.array([[270.0, 140], [380, 140], [320, 170], [270, 200], [380, 200]])
    error = np.linalg.norm(project(search.homography(0), points) - project(true, points), axis=1)
    assert error.max() < 6


def test_a_view_from_the_other_side_is_its_inverse():
    points = np.random.default_rng(0).uniform(0, 255, (50, 2))
    view = View(MATRIX, points, points, np.zeros(50), 0.4)
    other = _from_other_side(view, 3)
    np.testing.assert_allclose(project(other.matrix, other.points), points, atol=1e-6)
    np.testing.assert_allclose(other.points, other.targets)
    assert (other.support, other.pair) == (0.4, 3)


def test_the_confidence_of_a_replaced_flow_is_that_of_the_homography(photo, monkeypatch):
    """A homography that explains the scene is believed where it replaces the flow, and elsewhere nothing changes."""
    torch.manual_seed(0)
    network = create_model("recurrent-gocor-tiny").eval()
    reference, query = torch.rand(2, 1, 3, 48, 64).mul(255).unbind()
    belief = torch.zeros(1, 1, 48, 64)
    belief[..., :24, :] = 0.93
    monkeypatch.setattr("gocor.matching.alignment.wide.prefer_homography", lambda *a: Planar(a[2], belief))
    changed = match_wide_baseline(network, reference, query, backward=False, confidence=True, min_size=0)
    monkeypatch.setattr("gocor.matching.alignment.wide.prefer_homography", lambda *a: Planar(a[2], 0 * belief))
    kept = match_wide_baseline(network, reference, query, backward=False, confidence=True, min_size=0)
    for ours, own in ((changed.confidence, kept.confidence), (changed.visibility, kept.visibility)):
        assert ours[..., :24, :].min() >= 0.93
        assert torch.equal(ours[..., 24:, :], own[..., 24:, :])
