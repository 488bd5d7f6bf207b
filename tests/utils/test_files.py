"""Whole files: reading, atomic writing, and errors that name the path."""

import os

import pytest

from gocor.utils.files import atomic_path, check_folder, read_bytes, write_bytes_atomically, write_files


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
