"""What a run prints and writes."""

import json
import sys

import pytest

from gocor.training.logs import RunLog


def test_plain_lines_where_there_is_no_terminal(tmp_path, capsys):
    log = RunLog(tmp_path, step=10, total=20)
    log.record(15, "train", {"loss": 0.123456, "epe": float("nan"), "skipped": 3})
    log.record(15, "validation", {"epe": 1.5})
    log.close()
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("step 15/20  loss 0.1235  epe nan  skipped 3  ")
    assert first.endswith(" left")
    assert second == "step 15: validation epe 1.5"
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines[0] == {"step": 15, "kind": "train", "loss": 0.123456, "epe": None, "skipped": 3}


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


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet(tmp_path, capsys, quiet):
    log = RunLog(tmp_path, step=0, total=4, quiet=quiet)
    log.say("hello")
    log.close()
    assert capsys.readouterr().out == ("" if quiet else "hello\n")
