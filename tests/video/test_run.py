"""Whole runs: what is written, that frames and times are kept, one scale of colours, resumption and bounded memory."""

import os
import weakref
from fractions import Fraction

import numpy as np
import pytest
import torch

from gocor.data.io import read_csv, read_flow, read_image, write_image
from gocor.matching import MatchOptions
from gocor.models import create_model
from gocor.video import Stabilization, VideoOptions, check_output, make_video, open_source
from gocor.video.drawing import draw
from gocor.video.tracks import Points, Trails
from gocor.video.work import CHUNK, make_chunks
from gocor.viz import draw_flow, flow_to_color

from .clips import HEIGHT, WIDTH, ShiftNet, read_clip, shifted, steady_shift, write_clip

pytest.importorskip("av")
PLAIN = MatchOptions(align=False, min_size=0)


@pytest.fixture
def network():
    return ShiftNet().eval()


def run(source, output, network, report=lambda *_: None, **options):
    options = VideoOptions(**{"matching": PLAIN, **options})
    return make_video(open_source(str(source)), output, network, options, report=report)


def images(folder, frames):
    folder.mkdir()
    for index, picture in enumerate(frames):
        write_image(folder / f"{index}.png", picture)
    return folder


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_frames_and_times_are_kept(tmp_path, network, suffix):
    ticks = [0, 50, 100, 130, 200, 250, 300, 310]
    write_clip(tmp_path / "a.mp4", steady_shift(8), ticks=ticks)
    output = tmp_path / f"out{suffix}"
    run(tmp_path / "a.mp4", output, network)
    pictures, times, facts = read_clip(output)
    assert [picture.shape for picture in pictures] == [(HEIGHT, WIDTH, 3)] * 8
    expected = [Fraction(tick, 600) for tick in ticks]
    tolerance = 0 if suffix == ".mp4" else 0.001  # Matroska counts milliseconds
    assert np.abs(np.subtract(times, expected)).max() <= tolerance
    assert (facts["codec"], facts["pix_fmt"]) == ("h264", "yuv420p")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4", output.name]


def test_parts_are_joined_at_the_same_rate(tmp_path, network):
    frames = steady_shift(2 * CHUNK + 3, step=(1, 0))
    write_clip(tmp_path / "a.mp4", frames, rate=Fraction(30000, 1001))
    run(tmp_path / "a.mp4", tmp_path / "out.mp4", network, max_flow=4)
    pictures, times, facts = read_clip(tmp_path / "out.mp4")
    assert len(pictures) == len(frames)
    assert times == [index * Fraction(1001, 30000) for index in range(len(frames))]
    assert facts["rate"] == Fraction(30000, 1001)


def test_colours_have_one_scale_for_the_whole_clip(tmp_path, network):
    """Frames move by 1 pixel, then by 6: with a scale for each frame, both would have the full colour."""
    places = np.cumsum([0, 1, 1, 1, 6, 6, 6])
    made = run(images(tmp_path / "in", shifted([(int(x), 0) for x in places])), tmp_path / "out", network, view="flow")
    assert made.max_flow == 6
    for index, length in enumerate((1, 1, 1, 6, 6, 6, 6)):
        flow = np.broadcast_to(np.float32([length, 0])[:, None, None], (2, HEIGHT, WIDTH))
        expected = flow_to_color(flow, made.max_flow)
        np.testing.assert_array_equal(read_image(tmp_path / "out" / f"{index}.png"), expected)
    made = run(tmp_path / "in", tmp_path / "other", network, max_flow=12)
    assert made.max_flow == 12
    assert read_image(tmp_path / "other" / "0.png").min() > read_image(tmp_path / "out" / "0.png").min()


@pytest.mark.parametrize(("view", "width"), [("flow", WIDTH), ("side", 2 * WIDTH), ("overlay", WIDTH)])
def test_views(tmp_path, network, view, width):
    frames = steady_shift(3)
    run(images(tmp_path / "in", frames), tmp_path / "out", network, view=view)
    pictures = [read_image(tmp_path / "out" / f"{index}.png") for index in range(3)]
    assert all(picture.shape == (HEIGHT, width, 3) for picture in pictures)
    if view == "side":
        for picture, frame in zip(pictures, frames, strict=True):
            np.testing.assert_array_equal(picture[:, :WIDTH], frame)


@pytest.mark.parametrize("view", ["flow", "side", "overlay"])
def test_the_legend_is_on_top(view):
    """Neither the frame nor a trail shows through."""
    frame = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    flow, trails = torch.ones(2, 240, 320), Trails()
    for shift in (0, 40):
        trails.add(Points(np.arange(24), np.stack([np.full(24, 260.0) + shift, np.arange(24) * 10.0], 1)))
    drawn = draw(view, frame, flow, 5.0, trails)[:, -320:]
    expected = draw_flow(flow, max_flow=5.0)
    panel = (expected != draw_flow(flow, max_flow=5.0, legend=False)).any(2)
    assert panel.sum() > 1000
    np.testing.assert_array_equal(drawn[panel], expected[panel])


def test_odd_sides_are_padded_in_video_files_alone(tmp_path, network):
    folder = images(tmp_path / "in", steady_shift(3, size=(63, 95)))
    run(folder, tmp_path / "out.mp4", network)
    run(folder, tmp_path / "out", network)
    assert read_clip(tmp_path / "out.mp4")[0][0].shape == (64, 96, 3)
    assert read_image(tmp_path / "out" / "0.png").shape == (63, 95, 3)


def test_tracks_follow_a_known_translation(tmp_path, network):
    step = np.array([3, -1])
    folder = images(tmp_path / "in", steady_shift(8, step))
    run(folder, tmp_path / "out", network, tracks=20, tracks_csv=tmp_path / "tracks.csv")
    tracks = {}
    for row in read_csv(tmp_path / "tracks.csv", ("frame", "track", "x", "y")):
        values = row.values
        tracks.setdefault(values["track"], []).append([float(values[name]) for name in ("frame", "x", "y")])
    assert max(len(track) for track in tracks.values()) == 8
    for track in tracks.values():
        np.testing.assert_allclose(np.diff(track, axis=0), np.tile([1, *step], (len(track) - 1, 1)), atol=1e-3)
    drawn, frame = read_image(tmp_path / "out" / "7.png"), read_image(folder / "7.png")
    assert 0 < (drawn != frame).any(2).mean() < 0.3


def test_flows_are_written_on_request(tmp_path, network):
    folder = images(tmp_path / "in", steady_shift(4, (3, -1)))
    run(folder, tmp_path / "out", network, flows=tmp_path / "flows", flow_format="npz")
    assert sorted(path.name for path in (tmp_path / "flows").iterdir()) == ["0.npz", "1.npz", "2.npz"]
    flow, valid = read_flow(tmp_path / "flows" / "2.npz")
    assert valid.all()
    np.testing.assert_array_equal(flow[:, 30, 40], (3, -1))


def test_a_shaky_clip_becomes_steady(tmp_path, network):
    places = np.random.default_rng(0).integers(-4, 5, (12, 2))
    frames = shifted([(int(x), int(y)) for x, y in places])
    made = run(
        images(tmp_path / "in", frames), tmp_path / "out", network, stabilize=Stabilization(smooth=4, border="fill")
    )
    assert made.zoom == 1
    steady = [read_image(tmp_path / "out" / f"{index}.png") for index in range(12)]

    def change(pictures):
        inner = np.stack(pictures)[2:-2, 12:-12, 12:-12].astype(float)
        return np.abs(np.diff(inner, axis=0)).mean()

    assert change(steady) < 0.5 * change(frames)


def interrupt_after(count):
    def report(step, done, total):
        if step == "match" and done == count:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize("options", [{"view": "side", "tracks": 15}, {"stabilize": Stabilization(), "tracks": 15}])
@pytest.mark.parametrize("name", ["out.mp4", "out"])
def test_an_interrupted_run_goes_on_and_gives_the_same_files(tmp_path, network, options, name):
    count = 2 * CHUNK + 4
    write_clip(tmp_path / "a.mp4", steady_shift(count, step=(1, 0)))
    plain, resumed = tmp_path / "plain" / name, tmp_path / "resumed" / name
    run(tmp_path / "a.mp4", plain, network, tracks_csv=tmp_path / "plain.csv", **options)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.mp4", resumed, network, interrupt_after(CHUNK + 5), **options)
    assert [path.name for path in resumed.parent.iterdir()] == [f"{name}.work"]
    seen = []
    run(
        tmp_path / "a.mp4",
        resumed,
        network,
        lambda step, done, total: seen.append((step, done)),
        tracks_csv=tmp_path / "resumed.csv",
        **options,
    )
    assert min(done for step, done in seen if step == "match") == CHUNK + 1
    assert "measure" not in dict(seen)
    assert (tmp_path / "resumed.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()
    files = sorted(plain.iterdir()) if plain.is_dir() else [plain]
    assert len(files) == (count if plain.is_dir() else 1)
    for file in files:
        assert (tmp_path / "resumed" / file.relative_to(plain.parent)).read_bytes() == file.read_bytes()
    assert [path.name for path in resumed.parent.iterdir()] == [name]


def test_work_of_another_job_is_discarded(tmp_path, network):
    folder = images(tmp_path / "in", steady_shift(CHUNK + 4, step=(1, 0)))
    with pytest.raises(KeyboardInterrupt):
        run(folder, tmp_path / "out", network, interrupt_after(CHUNK + 2))
    seen = []
    run(folder, tmp_path / "out", network, lambda step, done, total: seen.append(done), max_flow=3)
    assert min(seen) == 1


def test_a_folder_of_the_user_is_not_taken_for_unfinished_work(tmp_path, network):
    folder = images(tmp_path / "in", steady_shift(3))
    (tmp_path / "out.work").mkdir()
    (tmp_path / "out.work" / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match=r"out\.work is in the way"):
        run(folder, tmp_path / "out", network)
    assert (tmp_path / "out.work" / "mine.txt").exists()


def test_a_run_that_was_killed_at_its_very_start_is_not_in_the_way(tmp_path, network):
    (tmp_path / "out.work" / ".gocor-0123456789abcdef.tmp").mkdir(parents=True)
    (tmp_path / "out.work" / ".gocor-0123456789abcdef.tmp" / ".lock").touch()
    run(images(tmp_path / "in", steady_shift(3)), tmp_path / "out", network)
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert not (tmp_path / "out.work").exists()


def test_a_failed_encoder_leaves_nothing_at_the_output(tmp_path, network, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gocor.video.sinks._Encoder.add", fail)
    with pytest.raises(OSError, match="No space left"):
        run(images(tmp_path / "in", steady_shift(3)), tmp_path / "out.mp4", network)
    assert not (tmp_path / "out.mp4").exists()
    assert not list((tmp_path / "out.mp4.work").glob("*.mp4"))


def test_one_frame_is_an_error_and_leaves_nothing(tmp_path, network):
    folder = images(tmp_path / "in", steady_shift(1))
    with pytest.raises(ValueError, match="the clip has one frame: flow needs two"):
        run(folder, tmp_path / "out.mp4", network)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("name", ["recurrent-gocor-tiny", "pwcnet-gocor-tiny"])
def test_few_frames_are_held_at_a_time(tmp_path, name, monkeypatch):
    """The number of frames in memory does not grow with the clip, for networks with and without `features`."""
    alive, most = weakref.WeakValueDictionary(), []
    source = open_source(str(images(tmp_path / "in", steady_shift(8))))
    frames = source.frames

    def watched(*arguments, **options):
        for index, picture in frames(*arguments, **options):
            alive[id(picture)] = picture
            most.append(len(alive))
            yield index, picture
            del picture

    monkeypatch.setattr(source, "frames", watched)
    options = VideoOptions(view="side", tracks=5, matching=PLAIN)
    make_video(source, tmp_path / "out.mp4", create_model(name), options)
    assert len(most) >= 16
    assert max(most) <= 4


def test_chunks_cover_all_frames_and_begin_with_a_pair():
    for count in (2, 3, CHUNK, CHUNK + 1, CHUNK + 2, 5 * CHUNK + 1):
        chunks = make_chunks(count)
        assert [index for chunk in chunks for index in chunk] == list(range(count))
        assert all(chunk.start < count - 1 for chunk in chunks)


def test_outputs_are_checked_before_the_work(tmp_path):
    check_output(tmp_path / "new" / "out.mp4", overwrite=False)
    check_output(tmp_path / "new", overwrite=False)
    (tmp_path / "old.mp4").write_bytes(b"x")
    check_output(tmp_path / "old.mp4", overwrite=True)
    for output, message in (
        (tmp_path / "old.mp4", "exists already; --overwrite"),
        (tmp_path, "exists already; --overwrite"),
        (tmp_path / "out.avi", r"must be a folder or end in \.mp4, \.mov, \.mkv, got"),
    ):
        with pytest.raises(ValueError, match=message):
            check_output(output, overwrite=False)


@pytest.mark.parametrize("name", ["link", "link.mp4", "pipe.mp4"])
def test_outputs_that_cannot_be_written_are_found_before_the_work(tmp_path, name):
    for link in ("link", "link.mp4"):
        (tmp_path / link).symlink_to(tmp_path / "nowhere" / link)
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises((OSError, ValueError), match=r"does not exist|it is a folder or a device"):
        check_output(tmp_path / name, overwrite=True)


@pytest.mark.parametrize("rate", [0.001, 10_000])
def test_extreme_rates_can_be_written(tmp_path, network, rate):
    source = open_source(str(images(tmp_path / "in", steady_shift(3))), rate)
    make_video(source, tmp_path / "out.mp4", network, VideoOptions(matching=PLAIN))
    assert [time * Fraction(str(rate)) for time in read_clip(tmp_path / "out.mp4")[1]] == [0, 1, 2]


def test_a_clip_does_not_replace_itself(tmp_path, network):
    folder = images(tmp_path / "in", steady_shift(3))
    write_clip(tmp_path / "a.mp4", steady_shift(3))
    before = {path: path.read_bytes() for path in (tmp_path / "a.mp4", *folder.iterdir())}
    for source, output in ((folder, folder), (folder / "*.png", folder), (tmp_path / "a.mp4", tmp_path / "a.mp4")):
        with pytest.raises(ValueError, match="would replace the frames that it is made of"):
            run(source, output, network)
    assert {path: path.read_bytes() for path in before} == before
    run(folder, folder / "out.mp4", network)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "both"}, "view must be one of"),
        ({"view": "frame"}, "give tracks or stabilize too"),
        ({"view": "flow", "stabilize": Stabilization()}, "view frame or side, got flow"),
        ({"max_flow": 0.0}, "max_flow must be a positive number"),
        ({"tracks": 5, "max_flow": 3.0}, "which this view does not show"),
        ({"tracks": -1}, "tracks must be at least 0"),
        ({"flow_format": "exr"}, "flow_format must be one of"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        VideoOptions(**options)
