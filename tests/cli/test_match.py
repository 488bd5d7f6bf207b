"""`gocor match`: what it writes and prints, how it resumes, and how it fails."""

import csv
import errno
import json
import os
import sys

import cv2
import numpy as np
import pytest
import torch

from gocor.cli.progress import duration
from gocor.data.io import read_flow, read_image, write_image
from gocor.matching import MatchOptions
from gocor.matching.api import match_stream
from gocor.matching.files import check_formats
from gocor.models import load_model, save_model
from gocor.models.weights import UntrainedWarning
from gocor.pipeline import images, worker
from gocor.pipeline.stores import folder as folder_store
from gocor.utils.errors import is_user_error

from .test_cli import runner

MODEL = "pwcnet-gocor-tiny"
MANY = {"flow.flo", "matches.csv", "done.json"}  # of each of several pairs
FILES = MANY | {
    "flow.png",
    "warped.png",
    "overlay.png",
    "matches.png",
    "confidence.png",
}
WARNING = f"gocor: warning: {MODEL} is untrained (untrained weights were requested): its output is meaningless\n"


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


@pytest.fixture
def match(run, tmp_path):
    """`gocor match` with a small untrained network, into the folder `out`; stages are left out of stderr."""

    def call(*arguments):
        code, out, err = run("match", *arguments, "-o", tmp_path / "out", "--model", MODEL, "--weights", "none")
        return code, out, without_stages(err)

    return call


def without_stages(err):
    return "".join(line for line in err.splitlines(keepends=True) if not line.endswith(" …\n"))


def picture(height=48, width=64, seed=0):
    noise = np.random.default_rng(seed).uniform(0, 255, (height, width, 3)).astype(np.float32)
    return cv2.GaussianBlur(noise, (0, 0), 2).clip(0, 255).astype(np.uint8)


@pytest.fixture
def folders(tmp_path):
    """Two folders of three pairs, one of another size, and files that are not images."""
    sizes = {"a": (48, 64), "b": (40, 56), "c": (48, 64)}
    for seed, folder in enumerate(("first", "second")):
        (tmp_path / folder).mkdir()
        for name, size in sizes.items():
            write_image(tmp_path / folder / f"{name}.{'png' if seed else 'jpg'}", picture(*size, seed))
    (tmp_path / "first" / "notes.txt").write_text("not an image")
    (tmp_path / "first" / ".a.png").write_text("nor this")
    return tmp_path / "first", tmp_path / "second"


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_two_images_of_other_sizes(match, tmp_path):
    write_image(tmp_path / "a.png", picture(48, 64))
    write_image(tmp_path / "b.jpg", picture(40, 90))
    code, out, err = match(tmp_path / "a.png", tmp_path / "b.jpg", "--formats", "flo, kitti", "--max-points", 7)
    folder = tmp_path / "out"
    assert (code, err) == (0, WARNING)
    assert out.startswith(f"{folder}: mean confidence 0.")
    for name in FILES | {"flow_kitti.png"}:
        assert f"wrote {folder / name}\n" in out
    assert names(folder) == FILES | {"flow_kitti.png"}
    assert read_flow(folder / "flow.flo")[0].shape == (2, 48, 64)
    assert read_image(folder / "warped.png").shape == (48, 64, 3)
    done = json.loads((folder / "done.json").read_text())
    assert done["model"] == MODEL
    assert done["weights"] is None
    assert done["max_points"] == 7
    assert done["query_size"] == [40, 90]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_same_result_as_from_python(run, tmp_path, precision):
    for name, size in (("a", (48, 64)), ("b", (40, 56))):
        write_image(tmp_path / f"{name}.png", picture(*size))
    with pytest.warns(UntrainedWarning):
        network = load_model(MODEL, None, device="cpu")
    save_model(network, tmp_path / "weights.safetensors")
    arguments = [
        "--model",
        MODEL,
        "--weights",
        tmp_path / "weights.safetensors",
        "--iters-local",
        2,
        "--max-size",
        0,
        "--precision",
        precision,
        "-q",
    ]
    assert run("match", tmp_path / "a.png", tmp_path / "b.png", "-o", tmp_path / "out", *arguments)[::2] == (0, "")
    pair = [(tmp_path / "a.png", tmp_path / "b.png")]
    result = next(match_stream(pair, network, MatchOptions(iters_local=2, max_size=None, precision=precision)))
    np.testing.assert_array_equal(read_flow(tmp_path / "out" / "flow.flo")[0], result.flow)


def test_kinds_of_images(match, tmp_path):
    pixels = picture()
    variants = {
        "grey": pixels[..., 0],
        "rgba": np.concatenate([pixels, pixels[..., :1]], -1),
        "deep": pixels.astype(np.uint16) * 257,
    }
    rows = [("reference", "query")]
    for name, variant in variants.items():
        cv2.imwrite(str(tmp_path / f"{name}.png"), variant)
        rows.append((f"{name}.png", str(tmp_path / "deep.png")))
    with open(tmp_path / "pairs.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert match(tmp_path / "pairs.csv")[::2] == (0, WARNING)
    assert names(tmp_path / "out") == {"grey-deep", "rgba-deep", "deep-deep"}


def test_folders_and_resuming(match, tmp_path, folders):
    code, out, err = match(*folders)
    assert (code, err) == (0, WARNING)
    assert names(tmp_path / "out") == {"a", "b", "c"}
    for name in "abc":
        assert names(tmp_path / "out" / name) == MANY
        assert f"{tmp_path / 'out' / name}: mean confidence" in out
    assert read_flow(tmp_path / "out" / "b" / "flow.flo")[0].shape == (2, 40, 56)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")}

    def changed():
        return {path.parent.name for path, time in times.items() if path.stat().st_mtime_ns != time}

    finished = "3 of 3 pairs are finished already; use --overwrite to match again\n"
    assert match(*folders) == (0, finished, "")  # the network is not even loaded
    assert not changed()
    write_image(folders[1] / "b.png", picture(40, 56, 9))  # another image
    (tmp_path / "out" / "c" / "done.json").write_text("cut sho")
    assert match(*folders)[1].startswith("1 of 3 pairs are finished")
    assert changed() == {"b", "c"}
    assert match(*folders, "--iters-local", 1)[0] == 0  # other options
    assert changed() == {"a", "b", "c"}


def test_json_lines(match, tmp_path, folders):
    (folders[1] / "a.png").write_text("not a picture")
    code, out, err = match(*folders, "--json", "--pictures", "--formats", "npz")
    lines = {line["name"]: line for line in map(json.loads, out.splitlines())}
    assert code == 1
    assert {name: line["status"] for name, line in lines.items()} == {"a": "failed", "b": "done", "c": "done"}
    assert lines["a"]["error"].startswith(f"cannot read {folders[1] / 'a.png'}")
    written = {path.rpartition("/")[2] for path in lines["b"]["files"]}
    assert written == names(tmp_path / "out" / "b") == FILES - {"flow.flo"} | {"flow.npz"}
    assert lines["b"]["matches"] == len((tmp_path / "out" / "b" / "matches.csv").read_text().splitlines()) - 1
    assert "2 pairs matched in" in err
    again = [json.loads(line) for line in match(*folders, "--json", "--pictures", "--formats", "npz")[1].splitlines()]
    assert [(line["name"], line["status"]) for line in again] == [("b", "skipped"), ("c", "skipped"), ("a", "failed")]
    match(*folders)  # without pictures: those of the earlier result are removed
    assert names(tmp_path / "out" / "b") == MANY


def test_one_hdf5_file(run, tmp_path, folders):
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "new" / "results.h5"
    arguments = ["match", *folders, "-o", file, "--model", MODEL, "--weights", "none"]
    code, out, err = run(*arguments)
    assert (code, err) == (0, WARNING)
    assert f"{file}:/a: mean confidence 0." in out
    with h5py.File(file) as found:
        assert set(found) == {"a", "b", "c"}
        assert found["b/flow"].shape == (2, 40, 56)
        assert json.loads(found["b"].attrs["done"])["query_size"] == [40, 56]
    assert run(*arguments)[1] == "3 of 3 pairs are finished already; use --overwrite to match again\n"
    assert run(*arguments, "--formats", "none")[0] == 0
    with h5py.File(file) as found:
        assert set(found["b"]) == {"matches"}
    assert run(*arguments, "--formats", "kitti")[2].endswith("formats must be flo or none, got kitti\n")
    assert "holds no pictures" in run(*arguments, "--pictures")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "cpu,cpu", "--device", "cpu"], "--devices cannot be combined with --device or --ray"),
        (["--devices", ","], "--devices must name devices, such as cuda:0,cuda:1, got ','"),
        (["--devices", "cpu,abacus"], "device 'abacus' cannot be used here"),
        (["--workers", "2"], "it needs --ray"),
    ],
)
def test_places_that_cannot_be_used(match, folders, arguments, message):
    code, out, err = match(*folders, *arguments)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert message in err


def test_a_dangling_link_is_refused_before_any_work(run, tmp_path, folders):
    pytest.importorskip("h5py")
    (tmp_path / "out.h5").symlink_to(tmp_path / "nowhere" / "out.h5")
    options = "--model", MODEL, "--weights", "none"
    code, out, err = run("match", *folders, "-o", tmp_path / "out.h5", *options)
    assert (code, out) == (1, "")
    assert err.endswith("nowhere does not exist, create it first\n")
    assert err.count("\n") == 1


def test_a_pipe_is_no_hdf5_file(run, tmp_path, folders):
    pytest.importorskip("h5py")
    os.mkfifo(tmp_path / "out.h5")  # opening it would wait for its writer
    code, out, err = run("match", *folders, "-o", tmp_path / "out.h5", "--model", MODEL, "--weights", "none")
    assert (code, out) == (1, "")
    assert err == f"gocor: {tmp_path / 'out.h5'} is a pipe, a socket or a device: give the path of a file\n"


def test_a_store_that_cannot_be_reached(run, folders, monkeypatch):
    core = pytest.importorskip("fsspec.core")

    def unreachable(root):
        raise OSError("Name or service not known")

    monkeypatch.setattr(core, "url_to_fs", unreachable)
    code, _, err = run("match", *folders, "-o", "ftp://gone/results", "--model", MODEL, "--weights", "none")
    assert (code, err) == (1, "gocor: cannot write to ftp://gone/results: Name or service not known\n")


def test_a_store_of_an_unknown_kind(run, folders):
    pytest.importorskip("fsspec")
    code, _, err = run("match", *folders, "-o", "nowhere://bucket/results", "--model", MODEL, "--weights", "none")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("gocor: cannot write to nowhere://bucket/results: ")


def test_progress_where_there_is_no_terminal(match, folders, monkeypatch):
    monkeypatch.setattr("gocor.cli.progress.INTERVAL", 0.0)
    lines = match(*folders)[2].splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["gocor: 1 of 3 pairs", "gocor: 2 of 3 pairs"]
    assert lines[1].endswith(" left")


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.25, "4.2 s"), (80, "1 min 20 s"), (7500, "2 h 5 min"), (273601, "3 d 4 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_overwrite(match, tmp_path, folders):
    single = folders[0] / "a.jpg", folders[1] / "a.png"
    assert match(*single)[0] == 0
    assert match(*single)[1] == f"{tmp_path / 'out'} is finished already; use --overwrite to match again\n"
    assert "wrote" in match(*single, "--overwrite")[1]


def test_bad_pairs_among_good_ones(match, tmp_path, folders):
    (folders[1] / "a.png").write_text("not a picture")
    code, out, err = match(*folders)
    lines = err.splitlines()
    assert code == 1
    assert lines[0] + "\n" == WARNING
    assert lines[1].startswith(f"gocor: a: cannot read {folders[1] / 'a.png'}: ")
    assert lines[2:] == ["gocor: 1 of 3 pairs failed"]
    assert names(tmp_path / "out") == {"b", "c"}
    assert out.count("mean confidence") == 2


def test_list_of_pairs(match, tmp_path, folders):
    rows = "\ufeffname, Reference, query\none, first/a.jpg, second/b.png\n\n,first/a.jpg,second/gone.png\n"
    (tmp_path / "pairs.csv").write_text(rows, encoding="utf-8")
    code, _, err = match(tmp_path / "pairs.csv")
    assert code == 1
    gone = tmp_path / "second" / "gone.png"
    assert err == f"{WARNING}gocor: a-gone: {gone} does not exist: check the path\ngocor: 1 of 2 pairs failed\n"
    assert names(tmp_path / "out") == {"one"}


def test_folders_with_unpaired_images(match, tmp_path, folders):
    os.rename(folders[1] / "b.png", folders[1] / "d.png")
    code, _, err = match(*folders)
    assert code == 1
    assert f"1 of {folders[0]} has no partner (b) and 1 of {folders[1]} has no partner (d)" in err
    write_image(folders[0] / "a.png", picture())
    assert f"{folders[0] / 'a.jpg'} and a.png have the same name" in match(*folders)[2]
    (tmp_path / "empty").mkdir()
    assert match(tmp_path / "empty", folders[1]) == (1, "", f"gocor: {tmp_path / 'empty'} holds no images\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["first/a.jpg", "second/gone.png"], "second/gone.png does not exist: check the path"),
        (["first/a.jpg"], "first/a.jpg needs a QUERY, an image or folder to match it with"),
        (["first", "second/a.png"], "two images or two folders"),
        (["pairs.csv", "second/a.png"], "takes no QUERY"),
        (["first/notes.txt", "second/a.png"], "cannot read first/notes.txt"),
        (["first", "second", "--model", "unknown"], "no model is named 'unknown'; there are"),
        (["first", "second", "--formats", "flo,gif"], "no flow format is named 'gif'"),
        (["first", "second", "--weights", "gone.pth"], "no such checkpoint: gone.pth"),
        (["first", "second", "--device", "abacus"], "device 'abacus' cannot be used here"),
        (["first/a.jpg", "second/a.png", "--max-size", 5], "max_size must be at least 16, got 5"),
        (["first/a.jpg", "second/a.png", "-o", "first/a.jpg"], "first/a.jpg: is not a folder"),
    ],
)
def test_errors_are_one_line(run, tmp_path, folders, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run("match", "-o", "out", "--model", MODEL, *arguments)
    assert (code, out) == (1, "")
    lines = [line for line in without_stages(err).splitlines() if "warning" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("gocor: ")
    assert message in lines[0]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("arguments", [[], ["a.png", "b.png"], ["a.png", "-o", "x", "--batch", "0"]])
def test_wrong_command_line(run, arguments):
    code, out, err = run("match", *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_interrupted(match, tmp_path, folders, monkeypatch):
    saved = folder_store.save_result

    def save_one(result, folder, **options):
        if folder.name == "b":
            raise KeyboardInterrupt
        return saved(result, folder, **options)

    monkeypatch.setattr(folder_store, "save_result", save_one)
    assert match(*folders)[::2] == (130, WARNING)
    assert names(tmp_path / "out") == {"a", "c"}  # of one size: matched together, before b
    monkeypatch.setattr(folder_store, "save_result", saved)
    assert match(*folders)[1].startswith("2 of 3 pairs are finished")


def test_full_disk_ends_the_command(match, tmp_path, folders, monkeypatch):
    def replace(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", source, None, target)

    monkeypatch.setattr(os, "replace", replace)
    code, out, err = match(*folders)
    first = tmp_path / "out" / "a"
    assert (code, out) == (1, "")
    assert err == f"{WARNING}gocor: {first / 'flow.flo'}: No space left on device\n"
    assert not first.exists()


def test_batches_without_memory_are_matched_one_by_one(match, tmp_path, folders, monkeypatch):
    together, sizes = worker.match_pictures, []

    def with_little_memory(pairs, *arguments, **options):
        sizes.append(len(pairs))
        if len(pairs) > 1 or len(pairs[0][0]) == 40:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return together(pairs, *arguments, **options)

    monkeypatch.setattr(worker, "match_pictures", with_little_memory)
    code, _, err = match(*folders)
    assert code == 1
    assert sizes == [2, 1, 1, 1]
    assert "gocor: b: not enough memory: try smaller images (--max-size, --size) or a smaller --batch\n" in err
    assert names(tmp_path / "out") == {"a", "c"}


@pytest.mark.parametrize("mistake", [lambda: int("x"), lambda: len(1), lambda: {}["x"]])
def test_programming_errors_keep_their_traceback(match, folders, monkeypatch, mistake):
    monkeypatch.setattr(images.ImageCache, "get", lambda self, path: mistake())
    with pytest.raises((ValueError, TypeError, KeyError)):
        match(*folders)


@pytest.mark.parametrize(("formats", "explained"), [(["gif"], True), (None, False)])
def test_errors_that_python_raises_are_bugs(formats, explained):
    with pytest.raises((ValueError, TypeError)) as caught:
        check_formats(formats)
    assert is_user_error(caught.value) == explained


def test_an_output_folder_that_cannot_be_made_is_an_error_before_any_work(run, tmp_path, folders, monkeypatch):
    monkeypatch.setattr("gocor.models.weights.load_model", None)  # not reached
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    images = folders[0] / "a.jpg", folders[1] / "a.png"
    code, out, err = run("match", *images, "-o", tmp_path / "link")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == f"gocor: {tmp_path / 'link'}: is a symbolic link to a folder that does not exist"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "nowhere")
    (tmp_path / "pairs.csv").write_text(f"reference,query,name\n{images[0]},{images[1]},a\n")
    code, out, err = run("match", tmp_path / "pairs.csv", "-o", tmp_path / "out")
    assert (code, out) == (1, "")
    assert err == f"gocor: {tmp_path / 'out' / 'a'}: is a symbolic link to a folder that does not exist\n"


def test_a_pipe_is_an_error_of_one_line(run, tmp_path, folders):
    os.mkfifo(tmp_path / "pipe.png")
    images = folders[0] / "a.jpg", tmp_path / "pipe.png"
    code, _, err = run("match", *images, "-o", tmp_path / "out", "--model", MODEL, "--weights", "none")
    assert code == 1
    assert err.splitlines()[-1] == f"gocor: {images[1]} is a pipe, a socket or a device: give the path of a file"


@pytest.fixture
def pair(tmp_path):
    for seed, name in enumerate(("a", "b")):
        write_image(tmp_path / f"{name}.png", picture(seed=seed))
    return tmp_path / "a.png", tmp_path / "b.png"


def test_one_pair_shows_its_stages(run, tmp_path, pair):
    code, out, err = run("match", *pair, "-o", tmp_path / "out", "--model", "glunet-gocor-tiny", "--weights", "none")
    stages = [line.removeprefix("gocor: ").removesuffix(" …") for line in err.splitlines() if line.endswith(" …")]
    assert code == 0
    assert stages[:4] == ["loading glunet-gocor-tiny", f"reading {pair[0]}", f"reading {pair[1]}", "aligning"]
    assert any(stage.startswith("matching") for stage in stages)
    assert stages[-1] == f"writing {tmp_path / 'out'}"
    assert out.splitlines()[-1].startswith("overlay.png: red is the reference, cyan the warped query; grey: both agree")


def test_a_live_line_on_a_terminal(run, tmp_path, pair, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    code, _, err = run("match", *pair, "-o", tmp_path / "out", "--model", MODEL, "--weights", "none")
    assert code == 0
    assert "writing " in err
    assert "gocor: loading" not in err
    assert "\x1b[2K" in err  # the line is erased at the end


def test_quiet_prints_warnings_and_errors_only(run, tmp_path, pair):
    quiet = ("-o", tmp_path / "out", "--model", MODEL, "--weights", "none", "--quiet")
    assert run("match", *pair, *quiet) == (0, "", WARNING)
    assert run("match", *pair, *quiet) == (0, "", "")  # finished
    pair[1].write_text("not a picture")
    code, out, err = run("match", *pair, *quiet)
    assert (code, out) == (1, "")
    assert "cannot read" in err


def test_stages_are_those_of_a_logger(pair, caplog):
    """A library user sees them by the means of Python's logging."""
    with pytest.warns(UntrainedWarning):
        network = load_model(MODEL, None, device="cpu")
    with caplog.at_level("INFO", logger="gocor.matching"):
        next(match_stream([pair], network))
    assert caplog.messages == [
        f"reading {pair[0]}",
        f"reading {pair[1]}",
        "matching",
        "matching in the opposite direction",
    ]


def test_what_a_killed_command_left_behind_is_removed(match, tmp_path, folders):
    assert match(*folders)[0] == 0
    for pair in ("a", "b"):  # b is matched again, a is finished
        place = tmp_path / "out" / pair / ".gocor-0123456789abcdef.tmp"
        place.mkdir()
        (place / ".lock").write_text("")
        (place / "flow.flo").write_text("half")
        (tmp_path / "out" / pair / ".gocor.lock").write_text("process 1 on elsewhere")
    (tmp_path / "out" / "b" / "done.json").unlink()
    assert match(*folders)[0] == 0
    assert names(tmp_path / "out" / "a") == names(tmp_path / "out" / "b") == MANY
