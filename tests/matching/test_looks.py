"""Further looks at the parts of a scene that one homography does not explain."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

from gocor.matching.alignment import DEFAULT_ALIGNMENT, looks, match_wide_baseline
from gocor.matching.alignment.looks import look_again, unexplained
from gocor.matching.alignment.parts import PartMatcher, homography_of_part
from gocor.matching.alignment.search import UNALIGNED
from gocor.matching.alignment.views import View
from gocor.matching.features import Images
from gocor.models import create_model, load_model
from gocor.models.outputs import Prediction
from gocor.ops.homography import project

SIDE, CELLS = 256, 32
LEFT = np.array([[1.0, 0, 40], [0, 1, 5], [0, 0, 1]])
RIGHT = np.array([[1.1, 0, -60], [0, 0.95, 20], [0, 0, 1]])
PHOTOS = Path(__file__).parents[2] / "src/gocor/assets"


class TwoPlanes:
    """A matcher of a scene whose left half moves by one homography and whose right half by another."""

    def __init__(self):
        self.settings, self.side, self.seen = DEFAULT_ALIGNMENT, SIDE, []
        x, y = np.meshgrid(*[(np.arange(CELLS) + 0.5) * SIDE / CELLS - 0.5] * 2)
        self.points = np.stack([x.ravel(), y.ravel()], 1)
        left = self.points[:, :1] < SIDE / 2
        self.truth = np.where(left, project(LEFT, self.points), project(RIGHT, self.points))

    def match(self, starts):
        """The network finds a motion of less than 70 pixels, and the better the smaller it is."""
        for pair, matrix in starts:
            targets = project(np.linalg.inv(matrix), self.truth)
            motion = np.linalg.norm(targets - self.points, axis=1)
            error, cells = np.where(motion < 70, 0.0, np.inf), 1 / (1 + motion.reshape(CELLS, CELLS) / 8)
            self.seen.append(View(matrix, self.points, targets, error, float(cells.mean()), pair, cells))
        return self.seen[len(self.seen) - len(starts) :]

    def shift(self, x, y):
        return np.array([[1, 0, x * SIDE], [0, 1, y * SIDE], [0, 0, 1]])


@pytest.fixture
def search():
    matcher = TwoPlanes()
    unaligned, aligned = matcher.match([(0, np.eye(3)), (0, LEFT)])
    return SimpleNamespace(matcher=matcher, settings=DEFAULT_ALIGNMENT, unaligned=[unaligned], best=[aligned])


@pytest.fixture
def right():
    part = torch.zeros(1, 1, 60, 80)
    part[..., 40:] = 1
    return part


def test_only_the_points_and_the_support_of_a_part_count(search, right):
    whole, matcher = search.best[0], PartMatcher(search.matcher, right)
    view = matcher.within(whole)
    assert np.isinf(view.error.reshape(CELLS, CELLS)[:, :16]).all()
    assert (view.error.reshape(CELLS, CELLS)[:, 16:] == whole.error.reshape(CELLS, CELLS)[:, 16:]).all()
    assert view.support == pytest.approx(whole.cells[:, 16:].sum() / whole.cells.size)
    assert matcher.points(view)[:, 0].min() > SIDE / 2 - 1
    assert len(matcher.points(view)) == CELLS * CELLS / 2


def test_the_homography_of_a_part_is_found_once(search, right):
    matrix = homography_of_part(search, 0, right, [LEFT])
    points = search.matcher.points[search.matcher.points[:, 0] > SIDE / 2]
    np.testing.assert_allclose(project(matrix, points), project(RIGHT, points), atol=0.5)
    assert homography_of_part(search, 0, right, [LEFT, matrix]) is None
    assert homography_of_part(search, 0, 0 * right, [LEFT]) is None


def test_the_images_as_they_are_can_explain_a_part(search, right, monkeypatch):
    monkeypatch.setattr("gocor.matching.alignment.parts.refine", lambda *_: [])
    assert np.array_equal(homography_of_part(search, 0, right, [LEFT]), UNALIGNED)


@pytest.mark.parametrize(
    ("confidences", "calls"),
    [
        ((0.1, 0.1), 1),  # a look that explains nothing is the last
        ((0.1, 0.9), 1),  # all is explained
        ((0.9, 0.9), 0),
    ],
)
@pytest.mark.parametrize("backward", [True, False])
def test_looks_end_when_nothing_is_left_or_nothing_is_gained(confidences, calls, backward, monkeypatch):
    first, second = (torch.zeros(1, 4, 24, 32) for _ in range(2))
    first[:, 2], second[:, 2] = confidences
    second[:, :2] = 5
    asked = []
    monkeypatch.setattr(looks, "homography_of_part", lambda *args: asked.append(len(args[3])) or LEFT)
    found = Prediction.of_maps(second)
    monkeypatch.setattr(looks, "match_aligned", lambda *_, backward, **__: (found, found if backward else None))
    images = Images.of(torch.zeros(1, 3, 24, 32))
    matcher = SimpleNamespace(reference=images, query=images, network=None)
    search = SimpleNamespace(
        matcher=matcher,
        settings=DEFAULT_ALIGNMENT,
        best=[SimpleNamespace(support=DEFAULT_ALIGNMENT.min_support)],
        alignment=lambda _: UNALIGNED,
        in_pixels=lambda matrix: matrix,
    )
    there, back = look_again(search, 0, first, first if backward else None)
    assert asked == list(range(1, calls + 1))
    better = confidences[1] > confidences[0]
    assert (there[:, :2] == (5 if better else 0)).all()
    assert back is None or torch.equal(there, back)
    assert (back is not None) == backward
    asked.clear()
    search.best[0].support /= 2  # images that have nothing in common
    assert look_again(search, 0, first, None)[0] is first
    assert not asked


def test_what_is_unexplained_is_averaged_over_a_window():
    maps = torch.zeros(1, 4, 96, 96)
    maps[:, 2, :, :48] = 1
    maps[:, 2, 40, 60] = 1  # single pixels do not count
    part = unexplained(maps, DEFAULT_ALIGNMENT)
    assert part.shape == (1, 1, 96, 96)
    assert not part[..., :46].any()
    assert part[..., 50:].all()


def two_parts():
    """A query in which a part of the reference moves out of the aligned query, and the rest is shifted and rotated.

    Returns:
        The two images, the true flow `(2, H, W)`, and which pixels are of the part.
    """
    photo = cv2.cvtColor(cv2.imread(str(PHOTOS / "reference.jpg")), cv2.COLOR_BGR2RGB)
    height, width = 240, 320
    rest = cv2.resize(photo[:300, 200:600], (width, height), interpolation=cv2.INTER_AREA)
    part = cv2.resize(photo[300:480, 0:180], (110, 110), interpolation=cv2.INTER_AREA)
    turn = np.array([[1, 0, -110], [0, 1, 0], [0, 0, 1]]) @ [*cv2.getRotationMatrix2D((160, 120), 20, 1.0), [0, 0, 1]]
    query = cv2.warpPerspective(rest, turn, (width, height), borderMode=cv2.BORDER_REFLECT)
    reference, moved = rest.copy(), np.zeros((height, width), bool)
    reference[5:115, 5:115], moved[5:115, 5:115] = part, True
    query[125:235, 205:315] = part
    points = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)
    truth = (project(turn, points.reshape(-1, 2).astype(float)).reshape(points.shape) - points).transpose(2, 0, 1)
    truth[:, moved] = [[200], [120]]
    return *(torch.from_numpy(x).permute(2, 0, 1)[None].float() for x in (reference, query)), truth, moved


def test_parts_that_move_apart_are_found():
    """A part that leaves the aligned query is only found by a further look."""
    reference, query, truth, moved = two_parts()
    network = load_model("recurrent-gocor", device="cpu")
    shares = []
    for count in (0, DEFAULT_ALIGNMENT.looks):
        settings = replace(DEFAULT_ALIGNMENT, looks=count)
        found = match_wide_baseline(
            network, reference, query, alignment=settings, backward=False, second_look=True, min_size=0
        )
        error = np.linalg.norm(found.forward[0].numpy() - truth, axis=0)
        shares.append((error[moved] < 3).mean())
        assert (error[~moved] < 3).mean() > 0.8
    assert shares[0] < 0.3
    assert shares[1] > 0.8


def test_batches_and_both_directions(monkeypatch):
    """A pair of a batch has the result of the pair alone, whether or not the others are looked at again."""
    torch.manual_seed(0)
    network = create_model("recurrent-gocor-tiny").eval()
    reference, query = 255 * torch.rand(2, 2, 3, 48, 64)
    settings = replace(
        DEFAULT_ALIGNMENT, min_support=0.0, min_unexplained_share=0.0, unsure_confidence=2.0, min_explained_more=-1.0
    )
    how = {"alignment": settings, "confidence": True, "second_look": True, "min_size": 0}
    calls = []
    real = looks.look_again
    monkeypatch.setattr("gocor.matching.alignment.wide.look_again", lambda *a, **k: calls.append(1) or real(*a, **k))
    both = match_wide_baseline(network, reference, query, **how)
    assert len(calls) == 2
    single = match_wide_baseline(network, reference[1:], query[1:], **how)
    for maps, alone in zip(both, single, strict=True):
        torch.testing.assert_close(maps[1:], alone, rtol=1e-3, atol=1e-2)
    calls.clear()
    match_wide_baseline(network, reference, query, **{**how, "second_look": False})
    assert not calls
