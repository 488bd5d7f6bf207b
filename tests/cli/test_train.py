"""`gocor train`, from a folder of photos to weights for `gocor match`."""

import errno
import hashlib
import json
import os
import signal

import numpy as np
import pytest
from safetensors import safe_open

from gocor.data.io import write_image
from gocor.models.zoo import read_row
from gocor.training import Outcome
from gocor.training.checkpoint import read_checkpoint
from gocor.utils.locks import locked_folder

from ..training.test_flow_data import smooth
from ..training.test_logs import events_of
from .test_cli import runner

SMALL = ("--model", "pwcnet-gocor-tiny", "--size", "64", "--batch", "2", "--device", "cpu", "--set", "log_every=1")


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number in range(6):
        write_image(folder / f"{number}.png", smooth(96, 128, number))
    (folder / "notes.txt").write_text("no photo")
    return folder


def test_a_folder_of_photos_becomes_weights(run, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("train", "--data", photos, *SMALL, "--steps", "2", "--set", "validation_pairs=2")
    assert (code, err) == (0, "")
    folder = tmp_path / "runs" / "pwcnet-gocor-tiny"
    lines = out.splitlines()
    assert lines[0].startswith("pwcnet-gocor-tiny, from the beginning, on cpu: static pairs of 6 photos")
    assert [line.split()[:2] for line in lines if line.startswith("step")] == [
        ["step", "1/2"],
        ["step", "2/2"],
        ["step", "2:"],
        ["step", "2:"],
    ]
    assert "step 2: validating on 2 pairs …" in lines
    assert lines[1] == "2 steps to take, each on 2 pairs of 64×64 pixels"
    assert " left" in lines[2]
    assert lines[-1] == (
        "wrote runs/pwcnet-gocor-tiny/best.safetensors, its runs/pwcnet-gocor-tiny/card.md, "
        "and runs/pwcnet-gocor-tiny/final.safetensors"
    )
    names = {path.name for path in folder.iterdir() if "tfevents" not in path.name}
    assert names == {
        "best.safetensors",
        "best.toml",
        "final.safetensors",
        "final.toml",
        "latest.safetensors",
        "latest.toml",
        "card.md",
        "config.toml",
        "last.pt",
        "log.jsonl",
        "pictures",
    }

    with safe_open(folder / "best.safetensors", "pt") as file:
        metadata = file.metadata()
        assert file.get_tensor("context.predict.weight").dtype.itemsize == 2
    assert metadata["model"] == "pwcnet-gocor-tiny"
    assert metadata["command"].startswith("gocor train --data")
    assert json.loads(metadata["recipe"])["batch"] == 2
    assert json.loads(metadata["metrics"])["epe"] > 0
    card = (folder / "card.md").read_text()
    for text in ("static pairs of 6 photos", "Steps: 2", "Seed: 0", "gocor train --data", "| epe |", "Apache-2.0"):
        assert text in card
    assert "VGG" not in card  # PWC-Net has features of its own
    row = read_row(folder / "best.toml")
    assert row.sha256 == hashlib.sha256((folder / "best.safetensors").read_bytes()).hexdigest()
    assert (row.model, row.runs[0].command) == ("pwcnet-gocor-tiny", metadata["command"])
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [(r["step"], r["kind"]) for r in records] == [(1, "train"), (2, "train"), (2, "validation")]
    scalars, pictures = events_of(folder)
    assert [step for step, _ in scalars["train/loss"]] == [1, 2]
    assert [step for step, _ in scalars["validation/epe"]] == [2]
    assert [picture.step for picture in pictures["validation"]] == [2]
    assert (folder / "pictures" / "step_0000002.png").read_bytes().startswith(b"\x89PNG")

    code, out, _ = run("train", "--model", "pwcnet-gocor-tiny", "--resume", "--steps", "3")
    assert code == 0
    assert "from step 2" in out
    commands = read_row(folder / "final.toml").runs[0].command.splitlines()
    assert commands == [metadata["command"], "gocor train --model pwcnet-gocor-tiny --resume --steps 3"]
    assert read_checkpoint(folder / "last.pt")["progress"]["step"] == 3
    weights = folder / "best.safetensors"
    pair = photos / "0.png", photos / "1.png"
    assert run("match", *pair, "--model", "pwcnet-gocor-tiny", "--weights", weights, "-o", tmp_path / "m")[0] == 0


def test_moving_objects(run, photos, tmp_path):
    objects = tmp_path / "objects"
    objects.mkdir()
    alpha = np.zeros((64, 64, 1), np.uint8)
    alpha[8:56, 8:56] = 255
    import cv2

    cv2.imwrite(str(objects / "square.png"), np.concatenate([smooth(64, 64, 9), alpha], 2))
    command = ("train", "--data", photos, "--objects", objects, *SMALL, "--steps", "1", "-o", tmp_path / "run")
    code, out, err = run(*command, "--set", "validation_pairs=2")
    assert (code, err) == (0, "")
    assert "dynamic pairs of 6 photos and 1 objects" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "gone"), "gone does not exist"),
        ((), "give photos to train on (--data) or data sets with optical flow (--flow), got neither"),
        (("--data", "."), "has no image files"),
        (("--resume",), "runs/pwcnet-gocor-tiny holds no run to resume: give the folder of one by --output"),
        (("--data", ".", "--set", "epochs=3"), "there is no option 'epochs'"),
        (("--data", ".", "--init", "gone.safetensors"), "no such checkpoint: gone.safetensors"),
        (("--data", ".", "--config", "gone.toml"), "gone.toml does not exist"),
        (("--data", ".", "--device", "abacus"), "device 'abacus' cannot be used here"),
        (("--data", ".", "--device", "meta"), "device 'meta' cannot be used here: its tensors hold no values"),
        (("--data", ".", "-o", os.devnull), f"{os.devnull}: is not a folder"),
    ],
)
def test_errors_are_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("train", *SMALL, *arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert err.startswith("gocor: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_full_disk_is_one_line(run, photos, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "last.pt"))

    monkeypatch.setattr("gocor.training.run.save_checkpoint", full)
    code, _, err = run("train", "--data", photos, *SMALL, "--steps", "1", "--set", "validation_pairs=2", "-o", tmp_path)
    assert (code, err) == (1, f"gocor: {tmp_path / 'last.pt'}: No space left on device\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_exit_code_of_a_signal(run, tmp_path, monkeypatch, number):
    stopped = Outcome(step=3, best=1.0, finished=False, signal=number)
    monkeypatch.setattr("gocor.training.loop.train", lambda *_, **__: stopped)
    assert run("train", "--data", tmp_path, *SMALL) == (128 + number, "", "")


def test_a_time_that_is_no_number_is_refused(run, photos, tmp_path):
    code, out, err = run("train", "--data", photos, *SMALL, "--stop-after", "nan", "-o", tmp_path / "run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Invalid value for '--stop-after'" in err


def test_stop_after_leaves_something_to_resume(run, photos, tmp_path):
    code, out, _ = run("train", "--data", photos, *SMALL, "--steps", "9999", "--stop-after", "0.01", "-o", tmp_path)
    assert code == 0
    assert out.splitlines()[-1] == f"to continue: gocor train --output {tmp_path} --resume"
    assert out.splitlines()[-2] == f"wrote the weights so far to {tmp_path}/latest.safetensors"
    assert not (tmp_path / "best.safetensors").exists()
    assert read_checkpoint(tmp_path / "last.pt")["progress"]["step"] >= 1


def test_a_second_command_into_the_same_folder_is_refused(run, photos, tmp_path):
    folder = tmp_path / "run"
    command = ("train", "--data", photos, *SMALL, "-o", folder, "--steps", "2", "--set", "validation_pairs=2")
    with locked_folder(folder):
        for others in ((), ("--resume",)):
            code, out, err = run(*command, *others)
            assert (code, out) == (1, "")
            assert err.startswith(f"gocor: {folder} is in use by process ")
            assert err.count("\n") == 1
    assert run(*command)[0] == 0


def test_a_variant_is_trained_from_the_command_line_and_loads_again(run, photos, tmp_path):
    from gocor import load_model
    from gocor.models import create_model, save_model

    small = ("--set", "network.width=0.125", "--set", "network.local.radius=2", "--size", "64", "--batch", "1")
    save_model(create_model("pwcnet", {"width": 0.125, "local.radius": 2}), tmp_path / "plain.safetensors")
    (tmp_path / "run.toml").write_text('model = "pwcnet-gocor"\n[network.local]\neta = 0.1\niters = 1\n')
    command = ("train", "--data", photos, "--config", tmp_path / "run.toml", *small, "--steps", "1", "--device", "cpu")
    command += ("--set", "validation_pairs=2", "-o", tmp_path / "run")
    code, out, err = run(*command, "--init", tmp_path / "plain.safetensors")
    assert code == 0, err
    assert "tensors of pwcnet; 30 of matching.0 to matching.4 start anew" in out
    network = load_model("pwcnet-gocor", tmp_path / "run" / "final.safetensors", device="cpu")
    assert network.variant == {"width": 0.125, "local.radius": 2, "local.eta": 0.1, "local.iters": 1}
    code, _, err = run("train", "-o", tmp_path / "run", "--resume", "--steps", "2", "--set", "network.local.eta=0.2")
    assert (code, err.count("\n")) == (1, 1)
    assert "other options of the network: they cannot change when it is resumed" in err
    code, _, err = run(*command, "--set", "network.local.etta=0.2")
    assert (code, err) == (
        1,
        "gocor: pwcnet-gocor has no option 'local.etta'; the nearest are local.eta\n",
    )
