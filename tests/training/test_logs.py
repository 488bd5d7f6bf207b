"""What a run prints and writes."""

import json
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gocor.training.logs import RunLog

from .toy import toy_config, toy_run, toy_sources


def events_of(folder):
    """What TensorBoard reads: steps and values of the scalars, and the pictures, by tag."""
    read = EventAccumulator(str(folder)).Reload()
    scalars = {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    return scalars, {tag: read.Images(tag) for tag in read.Tags()["images"]}


def test_plain_lines_where_there_is_no_terminal(tmp_path, capsys):
    log = RunLog(tmp_path, step=10, total=20)
    log.record(15, "train", {"loss": 0.123456, "epe": float("nan"), "skipped": 3})
    log.begin_validation(15, 64)
    log.record(15, "validation", {"epe": 1.5})
    log.close()
    first, begun, second = capsys.readouterr().out.splitlines()
    assert begun == "step 15: validating on 64 pairs …"
    assert first.startswith("step 15/20  loss 0.1235  epe nan  skipped 3  ")
    assert first.endswith(" left")
    assert second == "step 15: validation epe 1.5"
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines[0] == {"step": 15, "kind": "train", "loss": 0.123456, "epe": None, "skipped": 3}


def test_the_first_step_and_slow_ones_print_a_line(tmp_path, capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    log = RunLog(tmp_path, step=0, total=5)
    for step, seconds in ((1, 6), (2, 6), (3, 6), (4, 60)):
        now[0] += seconds
        if step == 4:
            log.record(step, "train", {"loss": 1.0})
        log.advance(step, {})
    log.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step 1/5  6 s a step  0:00:24 left"
    assert [line.split()[1] for line in lines] == ["1/5", "3/5", "4/5"]
    assert not [line for line in (tmp_path / "log.jsonl").read_text().splitlines() if '"step": 1' in line]


def test_a_slow_run_on_a_cpu_says_what_to_do(tmp_path, capsys, monkeypatch):
    from gocor.training import train

    monkeypatch.setattr("gocor.training.run.SLOW_HOURS", 0.0)
    config = toy_config(tmp_path, steps=3, log_every=50)
    train(config, sources=toy_sources(config))
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("step 1/3  "))
    assert "hours on this CPU: a GPU is much faster" in lines[place + 1]
    assert sum("on this CPU" in line for line in lines) == 1


def test_time_left_is_that_of_the_limit_where_it_is_shorter(tmp_path, capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for minutes, expected in ((None, "1:00:00 left"), (10.0, "0:09:00 left")):
        log = RunLog(tmp_path, step=0, total=61, minutes=minutes)
        now[0] += 60
        log.record(1, "train", {"minutes": 1.0})
        log.close()
        assert capsys.readouterr().out.strip().endswith(expected)


def test_a_bar_on_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    log = RunLog(tmp_path, step=0, total=4)
    log.record(2, "train", {"loss": 1.0})
    log.advance(2, {"loss": 1.0})
    log.close()
    printed = capsys.readouterr()
    assert "step 2/4" not in printed.out
    assert "2/4" in printed.err
    assert "loss 1 " in printed.err


def test_a_bar_shows_that_a_validation_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    log = RunLog(tmp_path, step=0, total=4)
    log.advance(4, {"loss": 1.0})
    log.begin_validation(4, 64)
    log.close()
    assert "validating on 64 pairs …" in capsys.readouterr().err


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet(tmp_path, capsys, quiet):
    log = RunLog(tmp_path, step=0, total=4, quiet=quiet)
    log.say("hello")
    log.close()
    assert capsys.readouterr().out == ("" if quiet else "hello\n")


def test_tensorboard_shows_scalars_and_pictures(tmp_path):
    log = RunLog(tmp_path, step=0, total=4, quiet=True)
    log.record(2, "train", {"loss": 0.25, "epe": 1e6})
    log.picture(3, "validation", np.full((8, 16, 3), 200, np.uint8))
    scalars, pictures = events_of(tmp_path)  # a killed process leaves all that it has recorded
    assert scalars == {"train/loss": [(2, 0.25)], "train/epe": [(2, 1e6)]}
    (picture,) = pictures["validation"]
    assert (picture.step, picture.height, picture.width) == (3, 8, 16)
    assert picture.encoded_image_string.startswith(b"\x89PNG")
    log.close()


def test_tensorboard_drops_steps_that_are_taken_again(tmp_path):
    for before, steps, value in ((0, (1, 2, 3, 4), 1.0), (2, (3,), 5.0)):
        log = RunLog(tmp_path, step=before, total=4, quiet=True)
        for step in steps:
            log.record(step, "train", {"loss": value})
        log.close()
    assert events_of(tmp_path)[0]["train/loss"] == [(1, 1.0), (2, 1.0), (3, 5.0)]


def test_without_tensorboard_a_run_says_so_and_goes_on(tmp_path, capsys, monkeypatch):
    from gocor.training import train

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    config = toy_config(tmp_path, steps=1)
    train(config, sources=toy_sources(config))
    lines = capsys.readouterr().out.splitlines()
    said = "no TensorBoard files are written: TensorBoard is not installed (pip install 'gocor[tensorboard]')"
    assert lines.count(said) == 1
    assert (tmp_path / "log.jsonl").exists()
    assert not list(tmp_path.glob("*tfevents*"))


def test_a_run_that_is_not_the_first_keeps_what_was_recorded_before(tmp_path):
    for steps in (2, 4):
        toy_run(tmp_path, steps=steps, resume=True)
    scalars, pictures = events_of(tmp_path)
    assert [step for step, _ in scalars["train/loss"]] == [1, 2, 3, 4]
    assert [picture.step for picture in pictures["validation"]] == [2, 4]
