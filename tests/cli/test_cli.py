"""The `gocor` command: what it writes, what it prints, and how it fails."""

import errno
import os
import sys

import pytest

from gocor import __version__, cli

from ..demo.test_demo import study

FILES = {"demo.png", "reference.png", "query.png"}


def runner(monkeypatch, capfd):
    """A function that runs the command in this process → exit code, stdout, stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["gocor", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return (end.value.code, *capfd.readouterr())

    return call


@pytest.fixture
def run(monkeypatch, capfd):
    monkeypatch.setattr("gocor.demo.study.study", lambda seed: study())  # computed once for all tests
    return runner(monkeypatch, capfd)


def test_version(run):
    assert run("--version") == (0, f"gocor {__version__}\n", "")


def test_help_without_a_command(run):
    code, out, _ = run()
    assert code == 0
    assert "demo" in out


def test_demo_writes_its_files_and_says_where(run, tmp_path):
    folder = tmp_path / "new" / "folder"
    code, out, err = run("demo", "--output", folder)
    assert (code, err) == (0, "")
    assert {path.name for path in folder.iterdir()} == FILES
    for name in FILES:
        assert f"wrote {folder / name}" in out
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert "plain correlation" in out
    assert "GOCor, 3 iterations" in out
    assert "all: right" in out


def test_demo_replaces_older_files(run, tmp_path):
    (tmp_path / "query.png").write_text("older")
    assert run("demo", "-o", tmp_path)[0] == 0
    assert (tmp_path / "query.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("tail", ["", "folder"])
def test_output_that_is_a_file(run, tmp_path, tail):
    file = tmp_path / "file"
    file.write_text("mine")
    assert run("demo", "--output", file / tail if tail else file) == (1, "", f"gocor: {file}: is not a folder\n")
    assert file.read_text() == "mine"


def test_output_that_is_not_writable(run, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # everything is writable for the superuser
    assert run("demo", "--output", tmp_path / "new") == (1, "", f"gocor: {tmp_path}: is not writable\n")
    assert not list(tmp_path.iterdir())


def test_full_disk_leaves_nothing_behind(run, tmp_path, monkeypatch):
    def replace(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", source, None, target)

    monkeypatch.setattr(os, "replace", replace)
    assert run("demo", "--output", tmp_path) == (1, "", f"gocor: {tmp_path / 'demo.png'}: No space left on device\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--unknown"], ["unknown"], ["demo", "--seed", "-1"], ["demo", "--output"]])
def test_wrong_command_line_is_one_line(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("gocor: ")
    assert err.count("\n") == 1


def test_interrupt_is_quiet(run, tmp_path, monkeypatch):
    def interrupted(seed):
        raise KeyboardInterrupt

    monkeypatch.setattr("gocor.demo.study.study", interrupted)
    assert run("demo", "--output", tmp_path / "new") == (130, "", "")
    assert not list(tmp_path.iterdir())
