"""`gocor reconstruct` on rendered photos, with a network that finds the exact matches."""

import json
import os
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from gocor.data.io import write_image
from gocor.reconstruction.pairing import sequential_pairs, similar_pairs
from gocor.reconstruction.photos import find_photos
from gocor.utils.locks import locked_folder

from ..cli.test_cli import runner
from .scene import camera, exact_match, picture

pycolmap = pytest.importorskip("pycolmap")
h5py = pytest.importorskip("h5py")
PLACES = [i / 11 for i in range(7)]  # the first half of the path


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number, place in enumerate(PLACES):
        write_image(folder / f"{number}.png", picture(place))
    return folder


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs the command with exact matches; `run.matched` are the pairs that were matched."""
    places = {picture(place).tobytes(): place for place in PLACES}
    matched = []

    def match(pairs):
        for reference, query in pairs:
            matched.append((places[reference.tobytes()], places[query.tobytes()]))
        return [exact_match(*pair) for pair in matched[-len(pairs) :]]

    monkeypatch.setattr("gocor.pipeline.worker.load_network", lambda *a, **k: None)
    monkeypatch.setattr("gocor.pipeline.worker.network_match", lambda network, job, features: match)
    call = runner(monkeypatch, capfd)
    call.matched = matched
    return call


def position_errors(model):
    """Distances in metres between true camera positions and those of a model, after a similarity transform."""
    images = [image for image in model.images.values() if image.has_pose]
    found = np.array([image.projection_center() for image in images])
    truth = np.array([camera(PLACES[int(image.name[0])]).position for image in images])
    transform = pycolmap.estimate_sim3d(found, truth)
    return np.linalg.norm(np.array([transform * point for point in found]) - truth, axis=1)


def test_all_cameras_are_found(run, photos, tmp_path):
    arguments = ("reconstruct", photos, "-o", tmp_path / "model", "--pairs", "sequential", "--neighbours", 3, "--h5")
    code, out, err = run(*arguments)
    assert (code, len(run.matched)) == (0, 15), err
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    assert report["registered"] == len(PLACES)
    assert report["verified_pairs"] == 15
    assert report["reprojection_error"] < 0.2
    assert report["track_length"] > 3
    assert ["points", str(report["points"])] in [line.split() for line in out.splitlines()]
    model = pycolmap.Reconstruction(tmp_path / "model" / "sparse" / "0")
    assert position_errors(model).max() < 0.02  # the path is two metres long
    (found,) = model.cameras.values()
    assert found.mean_focal_length() == pytest.approx(camera(0).focal, rel=0.02)
    assert (tmp_path / "model" / "points.ply").read_bytes().startswith(b"ply")
    check_h5(tmp_path / "model")
    before = (tmp_path / "model" / "report.json").read_bytes()
    code, out, err = run(*arguments, "--json")
    assert (code, len(run.matched)) == (0, 15)  # nothing was matched again
    assert "15 of 15 pairs are matched already" in err
    assert json.loads(out) == json.loads((tmp_path / "model" / "report.json").read_text())
    assert json.loads(before)["points"] == json.loads((tmp_path / "model" / "report.json").read_text())["points"]


def check_h5(folder):
    """The files of hloc hold the keypoints and the matches of the database."""
    database = pycolmap.Database.open(folder / "database.db")
    with h5py.File(folder / "features.h5") as features, h5py.File(folder / "matches.h5") as matches:
        first, second = (database.read_image_with_name(name).image_id for name in ("0.png", "1.png"))
        np.testing.assert_allclose(
            features["0.png/keypoints"][:] + 0.5, database.read_keypoints(first)[:, :2], atol=1e-3
        )
        assert features["0.png/image_size"][:].tolist() == [160, 120]
        indices = matches["0.png/1.png/matches0"][:]
        rows = {tuple(row) for row in database.read_matches(first, second).tolist()}
        assert rows == {(i, int(j)) for i, j in enumerate(indices) if j >= 0}
    database.close()


def test_database_only(run, photos, tmp_path):
    code, out, _ = run(
        "reconstruct", photos, "-o", tmp_path, "--pairs", "sequential", "--neighbours", 1, "--database-only"
    )
    assert code == 0
    assert out.splitlines()[:3] == ["photos          7", "pairs matched   6", "pairs verified  6"]
    assert (tmp_path / "database.db").is_file()
    assert not (tmp_path / "sparse").exists()


def test_names_may_have_spaces(run, photos, tmp_path):
    folder = tmp_path / "my photos"
    folder.mkdir()
    for photo in photos.iterdir():
        (folder / f"été {photo.name}").write_bytes(photo.read_bytes())
    code, out, _ = run(
        "reconstruct", folder, "-o", tmp_path / "out", "--pairs", "sequential", "--neighbours", 1, "--database-only"
    )
    assert code == 0
    assert "pairs verified  6" in out.splitlines()


def test_what_a_killed_run_left_is_removed(run, photos, tmp_path):
    """Files that were being written are removed by the next run, which is refused while another one writes."""
    for name in (".models/0", ".gocor-0123456789abcdef.tmp"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "unfinished").write_bytes(b"half")
    (tmp_path / ".gocor-0123456789abcdef.tmp" / ".lock").touch()
    arguments = ("reconstruct", photos, "-o", tmp_path, "--pairs", "sequential", "--neighbours", 2)
    with locked_folder(tmp_path):
        code, _, err = run(*arguments)
        assert code == 1
        assert "is in use by process" in err
    code, _, _ = run(*arguments)
    assert code == 0
    files = {"database.db", "matches", "points.ply", "report.json", "sparse"}
    assert {path.name for path in tmp_path.iterdir()} == files


def test_photos_without_common_points_are_an_error(run, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("gocor.reconstruction.store.transfer_anchors", nothing)
    code, _, err = run("reconstruct", photos, "-o", tmp_path, "--pairs", "sequential", "--neighbours", 1)
    assert code == 1
    assert err.endswith("and overlap\n")
    assert "no photo could be registered" in err
    assert "sfm.cc" not in err  # what COLMAP itself says of it
    assert not (tmp_path / "sparse").exists()


def nothing(result, anchors, others, min_confidence):
    from gocor.reconstruction.anchors import Transfer

    empty = Transfer(np.zeros(0, np.int32), np.zeros((0, 2)), np.zeros(0))
    return empty, empty


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pairs", "some"], "pairs must be one of 'exhaustive', 'sequential', 'similar', got 'some'"),
        (["--camera", "FISH"], "camera must be one of"),
    ],
)
def test_wrong_options(run, photos, tmp_path, options, message):
    code, _, err = run("reconstruct", photos, "-o", tmp_path, *options)
    assert code == 1
    assert message in err
    assert err.count("\n") == 1


def test_too_few_photos_and_no_pycolmap(run, photos, tmp_path, monkeypatch):
    (tmp_path / "few").mkdir()
    write_image(tmp_path / "few" / "a.png", picture(0.0))
    code, _, err = run("reconstruct", tmp_path / "few", "-o", tmp_path / "out")
    assert (code, err) == (1, f"gocor: a reconstruction needs 3 photos or more, {tmp_path / 'few'} has 1\n")
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    code, _, err = run("reconstruct", photos, "-o", tmp_path / "out")
    message = "a reconstruction needs pycolmap, which is not installed: pip install 'gocor[sfm]'"
    assert (code, err) == (1, f"gocor: {message}\n")


def test_a_name_that_is_no_text(run, photos, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    try:
        (folder / "0.png").rename(folder / os.fsdecode(b"\xff.png"))
    except OSError:
        pytest.skip("this file system has no such names")
    code, _, err = run("reconstruct", folder, "-o", tmp_path / "out")
    assert (code, err.count("\n")) == (1, 1)
    assert err.endswith("is not UTF-8: rename the photo\n")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_one_line(run, photos, tmp_path):
    resource = pytest.importorskip("resource")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    command = ("reconstruct", photos, "-o", tmp_path, "--pairs", "sequential", "--neighbours", 1)
    assert run(*command, "--database-only")[0] == 0
    (tmp_path / "database.db").unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # of the database; the matches are there
    try:
        code, _, err = run(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert code == 1
    assert f"gocor: COLMAP cannot write {tmp_path / 'database.db'}, is the disk full? It says: " in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["matches", "report.json"]


def test_pairs():
    assert sequential_pairs(4, 1) == [(0, 1), (1, 2), (2, 3)]
    similarity = np.array([[1, 0.9, 0.1, 0.0], [0.9, 1, 0.2, 0.1], [0.1, 0.2, 1, 0.8], [0.0, 0.1, 0.8, 1]])
    assert similar_pairs(similarity, 1) == [(0, 1), (1, 2), (2, 3)]  # (1, 2) connects both halves


def test_similar_photos_are_neighbours_on_the_path(photos):
    from gocor.models import create_model
    from gocor.reconstruction.pairing import photo_similarity

    network = create_model("glunet-gocor-tiny").eval()
    similarity = photo_similarity(find_photos(photos), network)
    np.testing.assert_allclose(np.diag(similarity), 1)
    assert similarity[0, 1] > similarity[0, 6]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_keypoints_belong_to_the_stored_pixels(tmp_path, orientation):
    """A bright pixel of the upright picture is where `to_stored` says in the file's pixels."""
    from gocor.data.io import read_image

    stored = np.zeros((20, 30, 3), np.uint8)
    stored[4:7, 20:23] = 255
    image = Image.fromarray(stored)
    exif = image.getexif()
    exif[0x112] = orientation
    for name in "abc":
        image.save(tmp_path / f"{name}.jpg", exif=exif, quality=95)
    photo = find_photos(tmp_path)[0]
    upright = read_image(photo.path)
    assert photo.size == upright.shape[:2]
    assert photo.stored_size == (20, 30)
    y, x = np.nonzero(upright[..., 0] > 128)
    np.testing.assert_allclose(photo.to_stored(np.array([[x.mean(), y.mean()]])), [[21, 5]], atol=0.3)
