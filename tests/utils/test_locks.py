"""Locks that end with their process, and files of killed writers."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from gocor.utils.files import atomic_path, remove_leftovers, write_bytes_atomically
from gocor.utils.locks import LOCK_FILE, locked_folder


def start(code, *arguments):
    """A process that runs `code`, and has printed a line by now."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


WRITER = """
    import sys
    from gocor.utils.files import atomic_path
    with atomic_path(sys.argv[1]) as path:
        path.write_bytes(b"half")
        print("ready", flush=True)
        sys.stdin.read()
"""
HOLDER = """
    import sys
    from pathlib import Path
    from gocor.utils.locks import locked_folder
    with locked_folder(Path(sys.argv[1])):
        print("ready", flush=True)
        sys.stdin.read()
"""


def test_what_a_killed_writer_leaves_is_removed_once_it_is_dead(tmp_path):
    target = tmp_path / "flow.flo"
    for name in (".0123456789abcdef.pt", ".gitignore", ".gocor-mine.tmp"):
        (tmp_path / name).write_text("a user's")
    (tmp_path / ".gocor-0123456789abcdef.tmp").mkdir()  # killed before it had a lock
    others = {".0123456789abcdef.pt", ".gitignore", ".gocor-mine.tmp"}
    process = start(WRITER, target)
    remove_leftovers(tmp_path)
    (place,) = {path.name for path in tmp_path.iterdir()} - others
    assert (tmp_path / place / "flow.flo").read_bytes() == b"half"  # a living process is left alone
    process.kill()
    process.wait()
    assert (tmp_path / place / "flow.flo").exists()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == others
    remove_leftovers(tmp_path / "none")


def test_a_living_writer_goes_on_beside_the_removal(tmp_path):
    with atomic_path(tmp_path / "a.txt") as path:
        path.write_text("whole")
        remove_leftovers(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.txt", "whole")]


def test_a_folder_that_looks_like_ours_but_holds_a_users_files_stays(tmp_path):
    place = tmp_path / ".gocor-0123456789abcdef.tmp"
    place.mkdir()
    (place / "notes.txt").write_text("a user's")
    remove_leftovers(tmp_path)
    assert (place / "notes.txt").read_text() == "a user's"


def test_long_names_can_be_written(tmp_path):
    name = 250 * "n" + ".json"
    write_bytes_atomically(tmp_path / name, b"1")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_folder_is_free_again_when_its_process_is_dead(tmp_path, number):
    folder = tmp_path / "new" / "run"
    process = start(HOLDER, folder)
    message = rf"run is in use by process {process.pid} on .*: wait for it, or choose another --output"
    with pytest.raises(ValueError, match=message), locked_folder(folder):
        pass
    os.kill(process.pid, number)
    process.wait()
    assert (folder / LOCK_FILE).exists()
    with locked_folder(folder) as supported:
        assert supported
    assert list(folder.iterdir()) == []


def test_a_folder_that_stays_empty_is_removed(tmp_path):
    with locked_folder(tmp_path / "new" / "run"):
        assert (tmp_path / "new" / "run").is_dir()
    assert list(tmp_path.iterdir()) == []
    with locked_folder(tmp_path / "new" / "run"):
        (tmp_path / "new" / "file").write_text("")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_waiting_for_a_folder(tmp_path):
    process = start(HOLDER, tmp_path)
    process.stdin.close()  # it ends by itself, sooner or later
    with locked_folder(tmp_path, wait=True):
        assert f"process {os.getpid()} on " in (tmp_path / LOCK_FILE).read_text()
    assert process.wait() == 0


def test_without_support_for_locks_work_goes_on(tmp_path, monkeypatch):
    import errno
    import fcntl

    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with locked_folder(tmp_path) as supported:
        assert not supported
        with atomic_path(tmp_path / "a") as path:
            path.write_text("1")
            remove_leftovers(tmp_path)  # it cannot know whether the process lives
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
