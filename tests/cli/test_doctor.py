"""`gocor doctor`, and `--verbose` of all commands."""

import json
import logging

import pytest

from gocor.doctor.checks import Check

from .test_cli import runner

CHECKS = [Check("one", True, "fine", 0.1), Check("two", True, "fine too", 0.2)]


@pytest.fixture
def run(monkeypatch, capfd):
    monkeypatch.setattr("gocor.doctor.checks.run_checks", lambda device: iter(CHECKS))
    return runner(monkeypatch, capfd)


def test_doctor_prints_facts_and_checks(run):
    code, out, err = run("doctor", "--device", "cpu")
    assert (code, err) == (0, "")
    for line in ("versions", "extras", "devices", "code that runs on cpu", "  ok    one: fine", "all 2 checks passed"):
        assert line in out.splitlines()


def test_doctor_fails_if_a_check_fails(run, monkeypatch):
    failing = [*CHECKS, Check("three", False, "broken", 0.0)]
    monkeypatch.setattr("gocor.doctor.checks.run_checks", lambda device: iter(failing))
    code, out, _ = run("doctor", "--device", "cpu")
    assert code == 1
    assert "  FAIL  three: broken" in out
    assert "1 of 3 checks failed" in out
    code, out, _ = run("doctor", "--device", "cpu", "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False


def test_doctor_json(run):
    code, out, err = run("doctor", "--device", "cpu", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["passed"] is True
    assert [check["name"] for check in content["checks"]] == ["one", "two"]
    assert content["device"] == "cpu"
    assert content["forms"]["local GOCor, inference"] == "tiles"
    assert json.loads(run("doctor", "--json", "--no-checks")[1])["checks"] == []
    assert "checks" not in run("doctor", "--no-checks")[1].splitlines()


def test_verbose_shows_the_traceback_of_a_user_error(run, tmp_path):
    line = f"gocor: {tmp_path / 'a.jpg'} does not exist: check the path\n"
    arguments = "match", tmp_path / "a.jpg", tmp_path / "b.jpg", "-o", tmp_path / "out"
    assert run(*arguments) == (1, "", line)
    code, out, err = run("--verbose", *arguments)
    assert (code, out) == (1, "")
    assert "Traceback (most recent call last):" in err
    assert err.endswith(line)
    assert run(*arguments) == (1, "", line)  # the next command is quiet again


def test_verbose_logs_the_chosen_forms(run, monkeypatch, tmp_path):
    import gocor.ops.select

    gocor.ops.select._log_once.cache_clear()
    level = logging.getLogger("gocor").level
    code, _, err = run("--verbose", "doctor", "--device", "cpu")
    assert code == 0
    assert "local GOCor on cpu in torch.float32 runs as 'tiles'" in err
    assert logging.getLogger("gocor").level == level
    assert not logging.getLogger("gocor").handlers


def test_verbose_after_the_command_has_a_hint(run):
    code, _, err = run("models", "--verbose")
    assert (code, err) == (2, "gocor: --verbose belongs before the command: gocor --verbose COMMAND …\n")


def test_completion_can_be_shown(run, monkeypatch):
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    code, out, _ = run("--show-completion")
    assert code == 0
    assert "complete" in out
