"""What the page computes and shows, without gradio."""

import re
import zipfile

import numpy as np
import pytest

from gocor.app import workshop as module
from gocor.app.settings import Settings
from gocor.app.views import heat_map, result_views, why_view
from gocor.app.workshop import Workshop, save_zip, start_models

SETTINGS = Settings(model="recurrent-gocor-tiny", updates=1, max_size=128, align=False)


def silent(done, what):
    pass


@pytest.fixture(scope="module")
def pictures():
    return np.random.default_rng(0).integers(0, 256, (2, 96, 128, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def workshop():
    return Workshop(["recurrent-gocor-tiny"], device="cpu", weights=None)


@pytest.fixture(scope="module")
def outcome(workshop, pictures):
    return workshop.compute(*pictures, SETTINGS, silent)


def test_progress_is_reported_and_results_are_kept(workshop, pictures, outcome, monkeypatch):
    seen = []
    other = Settings(model="recurrent-gocor-tiny", updates=2, max_size=128, align=False)
    second = workshop.compute(*pictures, other, lambda done, what: seen.append((done, what)))
    assert [what.split()[0] for _, what in seen] == ["loading", "matching", "matching", "optimising"]  # a second look
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    monkeypatch.setattr(module, "match", None)  # a kept result is not computed again
    assert workshop.compute(*pictures, other, silent) is second
    assert workshop.compute(*pictures, SETTINGS, silent) is outcome


def test_few_results_are_kept(workshop, pictures, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 1)
    first = workshop.compute(*pictures, SETTINGS, silent)
    workshop.compute(*pictures[::-1], SETTINGS, silent)
    assert workshop.compute(*pictures, SETTINGS, silent) is not first


def test_the_pixel_and_its_match_are_shown(outcome):
    x, y = 100, 20
    match = outcome.match_of(x, y)
    assert match[0] == pytest.approx(x + float(outcome.result.flow[0, y, x]))
    html = why_view(outcome, x, y, "global")
    assert f"Reference pixel ({x}, {y})" in html
    assert 'data-width="128" data-height="96"' in html
    titles = re.findall(r"<figcaption><b>(.*?)</b>", html)
    assert titles == ["Plain correlation", "GOCor, 1 iteration", "GOCor, 2 iterations", "GOCor, 3 iterations"]
    local = why_view(outcome, x, y, "local")
    assert local.count("gc-square") == 4  # where the local layer searches, in each heat map
    assert "gc-square" not in html
    assert why_view(outcome, 3, 90, "global") != html
    assert outcome.layer("nothing") is outcome.layers[0]


def test_every_view_has_its_pictures(outcome):
    views = result_views(outcome)
    assert list(views) == ["flow", "overlay", "before", "matches", "confidence"]
    assert [html.count("data:image/jpeg;base64,") for html in views.values()] == [1, 3, 2, 1, 1]
    assert not any("http" in html or "<script" in html for html in views.values())


def test_heat_maps_are_bright_where_scores_are_high():
    scores = -np.ones((6, 8))
    scores[4, 6] = 2
    picture = heat_map(scores, np.full((96, 128, 3), 200, np.uint8)).astype(int).sum(2)
    assert picture[72, 104] > 1.5 * picture[20, 20]
    y, x = np.unravel_index(picture.argmax(), picture.shape)
    assert abs(y - 71.5) <= 8
    assert abs(x - 103.5) <= 8
    assert heat_map(np.zeros((6, 8)), np.zeros((96, 128, 3), np.uint8)).max() == 0


def test_the_archive_has_all_files(outcome, tmp_path):
    path = save_zip(outcome.result, tmp_path / "new")
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        assert archive.testzip() is None
    assert {"flow.flo", "flow.png", "warped.png", "overlay.png", "matches.csv", "done.json"} <= names
    assert list((tmp_path / "new").iterdir()) == [path]


def test_the_preselected_network_is_first():
    assert start_models("glunet", ["basenet", "glunet"]) == ["glunet", "basenet"]
    assert start_models("mine", ["basenet"]) == ["mine", "basenet"]


def test_the_stages_of_matching_are_progress(pictures):
    seen = []
    Workshop(["glunet-gocor-tiny"], device="cpu", weights=None).compute(
        *pictures, Settings(model="glunet-gocor-tiny", max_size=128), lambda done, what: seen.append((done, what))
    )
    assert "aligning (glunet-gocor-tiny)" in [what for _, what in seen]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
