"""`gocor video`: what it writes and prints, and how it fails."""

import json
import sys

import pytest

from gocor.cli.video import Progress
from gocor.data.io import write_image

from ..video.clips import read_clip, steady_shift, write_clip
from .test_cli import runner

pytest.importorskip("av")
MODEL = ("--model", "recurrent-gocor-tiny", "--weights", "none", "--min-size", "0")


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


@pytest.fixture
def video(run, tmp_path):
    """`gocor video` with a small untrained network; stderr without the warning about it."""

    def call(source, *arguments, output="out.mp4"):
        code, out, err = run("video", source, "-o", tmp_path / output, *MODEL, *arguments)
        return code, out, "".join(line for line in err.splitlines(True) if "is untrained" not in line)

    return call


def test_a_clip_with_sound_and_odd_sides(video, tmp_path):
    write_clip(tmp_path / "a.mkv", steady_shift(4, size=(63, 95)), pix_fmt="yuv444p", audio=True)
    code, out, err = video(tmp_path / "a.mkv", "--view", "side", "--max-flow", 5, "--flows", tmp_path / "flows")
    assert code == 0
    assert out == f"full colour at a flow of 5 pixels\nwrote {tmp_path / 'out.mp4'}\nwrote {tmp_path / 'flows'}\n"
    assert "match: 4 of 4, " in err
    assert "frames/s, 0:00:00 left" in err
    assert "gocor: audio is dropped\n" in err
    assert "gocor: frames of 190×63 have odd sides: the last row or column is repeated\n" in err
    assert len(read_clip(tmp_path / "out.mp4")[0]) == 4
    assert sorted(path.name for path in (tmp_path / "flows").iterdir()) == [f"00000{i}.flo" for i in range(3)]


def test_the_answer_as_json(video, tmp_path):
    write_clip(tmp_path / "a.mp4", steady_shift(3))
    tracks = tmp_path / "tracks.csv"
    arguments = "--json", "--view", "flow", "--tracks", 5, "--tracks-csv", tracks, "--max-flow", 4
    code, out, _ = video(tmp_path / "a.mp4", *arguments)
    assert code == 0
    made = json.loads(out)
    assert made["files"] == [str(tmp_path / "out.mp4"), str(tracks)]
    assert made["clip"] == {"frames": 3, "width": 96, "height": 64}
    assert (made["max_flow"], made["zoom"]) == (4, None)


def test_frames_in_and_out_quietly(video, tmp_path):
    for index, picture in enumerate(steady_shift(3)):
        write_image(tmp_path / f"{index}.png", picture)
    arguments = "--stabilize", "--border", "fill"
    assert video(tmp_path / "*.png", "--quiet", *arguments, output="out") == (0, "", "")
    code, out, err = video(tmp_path / "*.png", "--overwrite", *arguments, output="out")
    assert (code, out) == (0, f"stabilised frames show 100 % of the width and height\nwrote {tmp_path / 'out'}\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.png", "1.png", "2.png"]
    assert "also holds" not in err
    write_image(tmp_path / "out" / "3.png", picture)  # of a longer clip
    code, _, err = video(tmp_path / "*.png", "--overwrite", *arguments, output="out")
    assert (code, f"{tmp_path / 'out'} also holds 1 file that this clip does not have\n" in err) == (0, True)
    code, _, err = video(tmp_path / "*.png", output="out")
    assert (code, err) == (1, f"gocor: {tmp_path / 'out'} exists already; --overwrite replaces it\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--motion", "homography"], "--motion needs --stabilize"),
        (["--tracks-csv", "tracks.csv"], "tracks_csv needs tracks"),
        (["--view", "all"], "view must be one of"),
        (["--rate", "10"], "rate is for images"),
    ],
)
def test_wrong_options_are_one_line(video, tmp_path, arguments, message):
    write_clip(tmp_path / "a.mp4", steady_shift(2))
    code, out, err = video(tmp_path / "a.mp4", *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("gocor: ")
    assert message in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


def test_tracks_that_cannot_be_written_are_found_before_the_work(video, tmp_path):
    write_clip(tmp_path / "a.mp4", steady_shift(2))
    code, _, err = video(tmp_path / "a.mp4", "--tracks", 5, "--tracks-csv", tmp_path)
    assert (code, err) == (1, f"gocor: cannot write {tmp_path}: it is a folder or a device, give the path of a file\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


def test_broken_and_short_clips_are_one_line(video, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    write_clip(tmp_path / "short.mp4", steady_shift(1))
    for name, message in (("broken.mp4", "cannot read"), ("short.mp4", "one frame"), ("none.mp4", "does not exist")):
        code, _, err = video(tmp_path / name)
        assert code == 1
        assert message in err
        assert err.count("\n") == 1
    assert not (tmp_path / "out.mp4").exists()
    assert not (tmp_path / "out.mp4.work").exists()


def test_a_missing_package_names_the_extra(video, tmp_path, monkeypatch):
    write_clip(tmp_path / "a.mp4", steady_shift(2))
    monkeypatch.setitem(sys.modules, "av", None)
    code, _, err = video(tmp_path / "a.mp4")
    assert (code, err) == (1, "gocor: video files need PyAV: pip install 'gocor[video]'\n")


def test_progress_counts_the_rate_of_this_run(monkeypatch, capfd):
    clock = iter(range(0, 1000, 40))
    monkeypatch.setattr("gocor.cli.video.time.monotonic", lambda: next(clock))
    report = Progress(quiet=False)
    for done in (17, 18, 19):
        report("match", done, 119)
    err = capfd.readouterr().err
    assert err.splitlines() == [
        "match: 18 of 119, 0.025 frames/s, 1:07:20 left",
        "match: 19 of 119, 0.025 frames/s, 1:06:40 left",
    ]
