"""Frames from video files and from images: pictures, times, rotation, colours, and files that cannot be read."""

import os
import sys
from fractions import Fraction

import numpy as np
import pytest

from gocor.data.io import write_image
from gocor.video import open_source
from gocor.video.clip import Clip

from .clips import shifted, steady_shift, write_clip

pytest.importorskip("av")


def test_a_video_file_gives_its_frames_and_their_times(tmp_path):
    frames = steady_shift()
    write_clip(tmp_path / "a.mp4", frames, rate=12)
    source = open_source(str(tmp_path / "a.mp4"))
    clip = source.scan()
    assert (clip.height, clip.width, clip.count, clip.rate, clip.has_audio) == (64, 96, 8, 12, False)
    assert [tick * clip.time_base for tick in clip.ticks] == [Fraction(i, 12) for i in range(8)]
    found = dict(source.frames())
    assert list(found) == list(range(8))
    assert all(np.abs(found[i].astype(int) - frames[i]).mean() < 12 for i in found)  # chroma has half the resolution
    assert [index for index, _ in source.frames(5)] == [5, 6, 7]
    some = dict(source.frames(only={2, 3}))
    assert list(some) == [2, 3]
    np.testing.assert_array_equal(some[3], found[3])


def test_variable_frame_rates_are_kept(tmp_path):
    ticks = [0, 20, 40, 100, 160, 170]
    write_clip(tmp_path / "a.mp4", steady_shift(6), ticks=ticks)
    clip = open_source(str(tmp_path / "a.mp4")).scan()
    assert [tick * clip.time_base for tick in clip.ticks] == [Fraction(tick, 600) for tick in ticks]
    assert clip.duration(2) * clip.time_base == Fraction(60, 600)
    assert clip.duration(5) == clip.duration(4)
    assert Clip.from_dict(clip.as_dict()) == clip


@pytest.mark.parametrize(("rotation", "turns"), [(90, 1), (-90, 3), (180, 2)])
def test_frames_are_turned_upright(tmp_path, rotation, turns):
    frames = steady_shift(2)
    write_clip(tmp_path / "plain.mp4", frames)
    write_clip(tmp_path / "turned.mp4", frames, rotation=rotation)
    plain = dict(open_source(str(tmp_path / "plain.mp4")).frames())
    source = open_source(str(tmp_path / "turned.mp4"))
    clip = source.scan()
    assert (clip.height, clip.width) == np.rot90(frames[0], turns).shape[:2]
    for index, picture in source.frames():
        np.testing.assert_array_equal(picture, np.rot90(plain[index], turns))


@pytest.mark.parametrize("colorspace", [1, 5])  # BT.709, BT.601
def test_colours_are_those_of_the_tagged_matrix(tmp_path, colorspace):
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (128, 128, 128)]
    frames = [np.full((64, 96, 3), colour, np.uint8) for colour in colours]
    write_clip(tmp_path / "a.mp4", frames, colorspace=colorspace)
    for (_, picture), colour in zip(open_source(str(tmp_path / "a.mp4")).frames(), colours, strict=True):
        np.testing.assert_allclose(picture[32, 48], colour, atol=4)


def test_images_are_ordered_by_their_numbers(tmp_path):
    frames = shifted([(i, 0) for i in range(12)])
    for index, picture in enumerate(frames):
        write_image(tmp_path / f"f{index}.png", picture)
    (tmp_path / "notes.txt").write_text("no image")
    for source in (open_source(str(tmp_path), 10), open_source(str(tmp_path / "f*.png"), 10)):
        clip = source.scan()
        assert (clip.count, clip.rate, clip.time_base) == (12, 10, Fraction(1, 10))
        for index, picture in source.frames():
            np.testing.assert_array_equal(picture, frames[index])
        assert source.name_of(10) == "f10"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.write_bytes(b"no video" * 100), "cannot read .*Invalid data"),
        (lambda path: path.write_bytes(b""), "cannot read"),
    ],
)
def test_files_that_are_no_video(tmp_path, make, message):
    path = tmp_path / "a.mp4"
    make(path)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        open_source(str(path)).scan()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.mp4")
    with pytest.raises(ValueError, match=r"a\.mp4 is a pipe, a socket or a device"):
        open_source(str(tmp_path / "a.mp4"))


def test_frames_beyond_the_limit_are_refused(tmp_path, monkeypatch):
    write_clip(tmp_path / "a.mp4", steady_shift(2))
    monkeypatch.setenv("GOCOR_MAX_BYTES", str(96 * 64 * 8))
    assert open_source(str(tmp_path / "a.mp4")).scan().count == 2
    monkeypatch.setenv("GOCOR_MAX_BYTES", str(96 * 64 * 8 - 1))
    with pytest.raises(ValueError, match=r"cannot read .*a\.mp4: an image of 96×64 pixels is too large"):
        open_source(str(tmp_path / "a.mp4")).scan()


def test_a_damaged_file_is_an_error_that_names_the_frame(tmp_path):
    path = tmp_path / "a.mp4"
    write_clip(path, steady_shift(8))
    data = bytearray(path.read_bytes())
    start = data.index(b"mdat")
    middle = start + (len(data) - start) // 2
    data[middle : middle + 3000] = bytes(3000)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.mp4 is damaged after \d frames: Invalid data"):
        open_source(str(path)).scan()


def test_frames_of_two_sizes_are_an_error(tmp_path):
    write_image(tmp_path / "0.png", steady_shift(1)[0])
    write_image(tmp_path / "1.png", steady_shift(1, size=(64, 90))[0])
    with pytest.raises(ValueError, match=r"1\.png: frames must have one size, expected 96×64, got 90×64"):
        list(open_source(str(tmp_path)).frames())


def test_wrong_arguments(tmp_path):
    write_clip(tmp_path / "a.mp4", steady_shift(2))
    with pytest.raises(ValueError, match="rate is for images"):
        open_source(str(tmp_path / "a.mp4"), 10)
    write_image(tmp_path / "a.png", steady_shift(1)[0])
    for rate in (-1, 0, 1e-300, 1e300, float("nan")):
        with pytest.raises(ValueError, match=r"rate must be from 0\.001 to 10,000 frames per second, got"):
            open_source(str(tmp_path), rate)
    with pytest.raises(ValueError, match="holds no images"):
        open_source(str(tmp_path / "*.jpg"))
    write_image(tmp_path / "a.jpg", steady_shift(1)[0])
    with pytest.raises(ValueError, match="have the same name"):
        open_source(str(tmp_path))
