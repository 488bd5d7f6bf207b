"""Panoramas of crops of one picture, whose homographies and exposures are known."""

import cv2
import numpy as np
import pytest
import torch

from gocor import GOCorError
from gocor.data.io import read_image, write_image
from gocor.matching.result import MatchResult
from gocor.reconstruction.panorama import chain, neighbour_homography, stitch

from ..cli.test_cli import runner

SIZE = (120, 160)
GAINS = (1.0, 0.75, 1.2)


def scene():
    noise = np.random.default_rng(0).uniform(0, 255, (200, 400, 3)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 4)
    return np.clip(110 + (smooth - smooth.mean()) * 8, 20, 190).astype(np.uint8)


def views():
    """Three views of the scene, and the homographies from the scene to each."""
    matrices = []
    for number, x in enumerate((10, 115, 225)):
        tilt = np.array([[1, 0.03 * (number - 1), 0], [0, 1, 0], [2e-4 * (number - 1), 0, 1]])
        matrices.append(tilt @ np.array([[1, 0, -x], [0, 1, -40], [0, 0, 1.0]]))
    warped = [cv2.warpPerspective(scene(), matrix, SIZE[::-1]) for matrix in matrices]
    return [np.clip(gain * view, 0, 255).astype(np.uint8) for gain, view in zip(GAINS, warped, strict=True)], matrices


def exact(first, second, pictures, matrices):
    """The result of a perfect network for two views."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]].astype(np.float64)
    ends = np.stack([x, y, np.ones_like(x)], -1) @ (matrices[second] @ np.linalg.inv(matrices[first])).T
    ends = ends[..., :2] / ends[..., 2:]
    inside = torch.from_numpy(((ends >= 0) & (ends <= (SIZE[1] - 1, SIZE[0] - 1))).all(-1))
    flow = torch.from_numpy((ends - np.stack([x, y], -1)).astype(np.float32)).permute(2, 0, 1).contiguous()
    return MatchResult(pictures[first], pictures[second], flow, inside.float(), ~inside)


def test_command_restores_the_scene(tmp_path, monkeypatch, capfd):
    pictures, matrices = views()
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for file, picture in zip(files, pictures, strict=True):
        write_image(file, picture)
    results = iter([exact(0, 1, pictures, matrices), exact(1, 2, pictures, matrices)])
    monkeypatch.setattr("gocor.matching.match", lambda *a, **k: next(results))
    monkeypatch.setattr("gocor.models.weights.load_model", lambda *a, **k: None)
    code, out, _ = runner(monkeypatch, capfd)("panorama", *files, "-o", tmp_path / "out.png")
    assert code == 0
    found = read_image(tmp_path / "out.png")
    assert f"{found.shape[1]}×{found.shape[0]} pixels" in out
    assert found.shape[1] > 330
    # Where the middle view is in the panorama: the best place of a patch of it.
    patch = pictures[1][30:90, 40:120]
    score = cv2.matchTemplate(found, patch, cv2.TM_CCOEFF_NORMED)
    _, best, _, (x, y) = cv2.minMaxLoc(score)
    assert best > 0.98
    move = np.array([[1, 0, x - 40], [0, 1, y - 30], [0, 0, 1.0]]) @ matrices[1]
    truth = cv2.warpPerspective(scene(), move, found.shape[1::-1])
    covered = (found > 0).all(2)
    assert covered.mean() > 0.8
    ratio = found[covered].astype(float) / truth[covered].clip(1)
    level = np.median(ratio)  # the exposure of the panorama is arbitrary, but it is the same everywhere
    for part in np.array_split(np.arange(found.shape[1]), 3):
        inner = covered[:, part]
        assert np.median(found[:, part][inner] / truth[:, part][inner].clip(1)) == pytest.approx(level, rel=0.04)
    assert np.mean(np.abs(ratio / level - 1) < 0.1) > 0.9


def test_chain_leads_to_the_middle():
    _, matrices = views()
    steps = [matrices[i + 1] @ np.linalg.inv(matrices[i]) for i in range(2)]
    for found, matrix in zip(chain(steps), matrices, strict=True):
        np.testing.assert_allclose(found, matrices[1] @ np.linalg.inv(matrix), atol=1e-9)


def test_size_is_bounded():
    pictures, matrices = views()
    whole = stitch(pictures, [np.linalg.inv(matrix) for matrix in matrices])
    small = stitch(pictures, [np.linalg.inv(matrix) for matrix in matrices], max_size=100)
    assert whole.shape[1] > 330
    assert small.shape[1] == 100


def test_pictures_that_do_not_connect():
    pictures, matrices = views()
    result = exact(0, 1, pictures, matrices)
    none = MatchResult(pictures[0], pictures[1], result.flow, 0 * result.confidence, result.occlusion)
    with pytest.raises(GOCorError, match="a and b do not connect: a homography needs 4 matches, there are 0"):
        neighbour_homography(none, ("a", "b"))
    flow = 60 * torch.rand(2, *SIZE, generator=torch.Generator().manual_seed(0))
    noise = MatchResult(pictures[0], pictures[1], flow, torch.ones(SIZE), result.occlusion)
    with pytest.raises(GOCorError, match="a and b do not connect: a homography explains"):
        neighbour_homography(noise, ("a", "b"))


def test_implausible_homographies():
    pictures, _ = views()
    shrunk = np.diag([0.25, 0.25, 1])
    with pytest.raises(GOCorError, match="is not plausible: it folds or rescales"):
        neighbour_homography(exact(0, 1, pictures, [np.eye(3), shrunk]), ("a", "b"))
    with pytest.raises(GOCorError, match="too wide an angle"):
        stitch(pictures[:2], [np.eye(3), np.array([[1, 0, 0], [0, 1, 0], [-1 / 100, 0, 1.0]])])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.png", "-o", "out.png"], "a panorama needs two photos or more, got 1"),
        (["a.png", "b.png", "-o", "out.gif"], "out.gif: the name of the file to write must end in .png, .jpg or .jpeg"),
        (["a.png", "b.png", "-o", "no/out.png"], "no does not exist: create the folder first"),
        (["a.png", "b.png", "-o", "l.png"], "cannot write l.png: the folder /no/x does not exist, create it first"),
    ],
)
def test_wrong_arguments(tmp_path, monkeypatch, capfd, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "l.png").symlink_to("/no/x/out.png")
    assert runner(monkeypatch, capfd)("panorama", *arguments) == (1, "", f"gocor: {message}\n")
