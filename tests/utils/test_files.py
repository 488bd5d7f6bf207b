"""Whole files: reading, atomic writing, and errors that name the path."""

import errno
import os
from contextlib import suppress

import pytest

from gocor.utils.files import (
    atomic_path,
    check_folder,
    check_target,
    read_bytes,
    write_bytes_atomically,
    write_files,
)


def saved(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


def write_half(path, error):
    with atomic_path(path) as temporary:
        assert (temporary.parent.parent, temporary.name) == (path.parent, path.name)
        temporary.write_bytes(b"half")
        raise error


def test_atomic_path_replaces_only_on_success(tmp_path):
    path = saved(tmp_path, "a.flo", b"old")
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            write_half(path, error)
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="nothing was written for"), atomic_path(path):
        pass
    write_bytes_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_files_have_usual_rights_and_follow_links(tmp_path):
    plain = saved(tmp_path, "plain", b"")
    write_bytes_atomically(tmp_path / "new", b"1")
    assert (tmp_path / "new").stat().st_mode == plain.stat().st_mode
    (tmp_path / "link").symlink_to("new")
    write_bytes_atomically(tmp_path / "link", b"2")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "new").read_bytes() == b"2"


def test_atomic_writing_says_where_it_cannot_write(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"cannot write .*folder .*no does not exist, create it first"):
        write_bytes_atomically(tmp_path / "no" / "a.flo", b"")
    with pytest.raises(ValueError, match="it is a folder"):
        write_bytes_atomically(tmp_path, b"")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="is not writable"):
        write_bytes_atomically(tmp_path / "a", b"")


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_written_beside_a_file_is_removed(tmp_path, fails):
    """As the journal of a database."""
    with suppress(KeyError), atomic_path(tmp_path / "a.db") as path:
        path.write_bytes(b"1")
        path.with_name("a.db-journal").write_bytes(b"2")
        if fails:
            raise KeyError
    assert [file.name for file in tmp_path.iterdir()] == ([] if fails else ["a.db"])


def test_an_error_that_cannot_be_changed_names_the_file(tmp_path):
    """PyAV's errors of a full disk are like this."""

    class FixedError(OSError):
        filename = property(lambda self: None)

    with pytest.raises(OSError, match=r"No space left on device: .*out\.mp4"), atomic_path(tmp_path / "out.mp4"):
        raise FixedError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_several_files_at_once(tmp_path):
    folder = tmp_path / "new" / "folder"
    assert write_files(folder, {"a": b"1", "b": b"2"}) == [folder / "a", folder / "b"]
    assert (folder / "b").read_bytes() == b"2"


def test_reading_says_what_is_wrong_with_the_path(tmp_path):
    assert read_bytes(saved(tmp_path, "a", b"content")) == b"content"
    with pytest.raises(ValueError, match="is a folder"):
        read_bytes(tmp_path)
    with pytest.raises(FileNotFoundError, match="no does not exist"):
        read_bytes(tmp_path / "no")
    with pytest.raises(ValueError, match="is empty"):
        read_bytes(saved(tmp_path, "empty", b""))


def test_a_folder_is_checked_before_it_exists(tmp_path):
    check_folder(tmp_path / "new" / "folder")
    assert not (tmp_path / "new").exists()
    with pytest.raises(NotADirectoryError):
        check_folder(saved(tmp_path, "file", b"") / "folder")


def test_the_target_of_a_file_is_checked_before_any_work(tmp_path):
    """A link may lead to a file that does not exist yet; what a killed process was writing there is removed."""
    (tmp_path / "there" / ".gocor-0123456789abcdef.tmp").mkdir(parents=True)
    (tmp_path / "there" / ".gocor-0123456789abcdef.tmp" / ".lock").touch()
    (tmp_path / "good").symlink_to(tmp_path / "there" / "new.png")
    check_target(tmp_path / "good")
    assert not list((tmp_path / "there").iterdir())
    (tmp_path / "bad").symlink_to(tmp_path / "nowhere" / "new.png")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist, create it first"):
        check_target(tmp_path / "bad")
    with pytest.raises(FileNotFoundError, match="gone does not exist: create the folder first"):
        check_target(tmp_path / "gone" / "a.png")
    with pytest.raises(NotADirectoryError):
        check_target(saved(tmp_path, "file", b"") / "a.png")
    with pytest.raises(ValueError, match="it is a folder or a device"):
        check_target(tmp_path / "there")


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # a plain `open` would wait for its writer
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(ValueError, match=f"{name} is a pipe, a socket or a device: give the path of a file"):
            read_bytes(tmp_path / name)
    with pytest.raises(ValueError, match="is not a path"):
        read_bytes("a\0b")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="only Linux has such files")
def test_an_error_while_reading_names_the_file():
    with pytest.raises(OSError, match="/proc/self/mem"):
        read_bytes("/proc/self/mem")


def test_a_file_beyond_the_limit_is_not_read(tmp_path, monkeypatch):
    path = saved(tmp_path, "a.bin", bytes(1025))
    monkeypatch.setenv("GOCOR_MAX_BYTES", "1K")
    with pytest.raises(ValueError, match=r"a\.bin takes 1,025 bytes, the limit is 1,024"):
        read_bytes(path)
    path.write_bytes(bytes(1024))
    assert read_bytes(path) == bytes(1024)


@pytest.mark.parametrize("folder", ["link", "link/sub/folder", "loop/sub"])
def test_a_dangling_link_is_no_folder_to_write_to(tmp_path, folder):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(FileNotFoundError, match="is a symbolic link to a folder that does not exist"):
        check_folder(tmp_path / folder)
