"""`gocor data preview`."""

import pytest

from gocor.data.io import read_image, write_image

from ...cli.test_cli import runner
from .test_objects import coloured, disc, save_rgba
from .toy import photo


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(3):
        write_image(folder / f"{seed}.png", photo(seed=seed))
    return folder


@pytest.fixture
def objects(tmp_path):
    folder = tmp_path / "objects"
    folder.mkdir()
    save_rgba(folder / "a.png", coloured((200, 100, 50)), disc())
    return folder


def test_help_without_a_command(run):
    code, out, err = run("data")
    assert (code, err) == (0, "")
    assert "preview" in out


def test_a_sheet(run, photos, tmp_path):
    sheet = tmp_path / "sheet.png"
    assert run("data", "preview", photos, "-o", sheet, "--count", 3, "--size", 48) == (0, f"wrote {sheet}\n", "")
    picture = read_image(sheet)
    assert picture.shape == (26 + 3 * 54, 6 + 5 * 54, 3)
    assert picture[40:80, 10:40].std() > 5
    first = picture.copy()
    run("data", "preview", photos, "-o", sheet, "--count", 3, "--size", 48)
    assert (read_image(sheet) == first).all()
    run("data", "preview", photos, "-o", sheet, "--count", 3, "--size", 48, "--seed", 1)
    assert (read_image(sheet) != first).any()


@pytest.mark.parametrize("preset", ["dynamic", "flow", "dynamic-published"])
def test_with_objects(run, photos, objects, tmp_path, preset):
    sheet = tmp_path / "sheet.jpg"
    arguments = ("data", "preview", "--preset", preset, photos, "--objects", objects, "-o", sheet, "--size", 32)
    assert run(*arguments)[0] == 0
    assert sheet.exists()


def test_skipped_files_are_counted_in_one_line(run, photos, tmp_path):
    (photos / "bad.png").write_bytes(b"no image")
    code, _, err = run("data", "preview", photos, "-o", tmp_path / "sheet.png", "--size", 32)
    assert code == 0
    assert err.startswith("gocor: warning: 1 of 4 photos were skipped")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "chairs"], "no preset is named 'chairs'"),
        (["--preset", "dynamic"], "has moving objects"),
        (["--objects", "objects"], "has no moving objects"),
        (["-o", "sheet.gif"], "the suffix must be one of"),
        (["-o", "missing/sheet.png"], "missing does not exist"),
    ],
)
def test_errors_are_one_line(run, photos, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("data", "preview", photos, "-o", "sheet.png", *arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "sheet.png").exists()


def test_a_folder_without_photos(run, tmp_path):
    code, _, err = run("data", "preview", tmp_path, "-o", tmp_path / "sheet.png")
    assert code == 1
    assert "has no image files" in err
