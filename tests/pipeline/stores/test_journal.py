"""Every write of an HDF5 file may be the last one: the file holds the committed pairs, and no part of others."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gocor.pipeline.pairs import Pair
from gocor.pipeline.stores import journal
from gocor.pipeline.stores.hdf5 import DONE, Entry, Hdf5Store
from gocor.pipeline.stores.journal import JournaledFile
from gocor.utils.errors import InputError

h5py = pytest.importorskip("h5py")


class KilledError(BaseException):
    """Stands for SIGKILL."""


def entry(number, rows=50):
    array = np.full((rows, 5), number, np.float32)
    return Entry({"matches": array}, {"mean_confidence": 0.5, "matches": rows, "number": number})


def pair(number):
    return Pair("", "", f"pair{number}")


def numbers(path):
    """Numbers of the pairs in a file, read as any user would; each must be whole."""
    with h5py.File(path) as file:
        for name in file:
            np.testing.assert_array_equal(file[name]["matches"][()], int(name.removeprefix("pair")) % 100)
            assert DONE in file[name].attrs
        return {int(name.removeprefix("pair")) for name in file}


def count_steps(monkeypatch, stop_at=None):
    """Count system calls that change files; the one numbered `stop_at` is cut in half, and all later ones fail."""
    calls = []

    class Watched(journal.io.FileIO):
        def write(self, data):
            data = bytes(data)
            step(lambda: super(Watched, self).write(data), lambda: super(Watched, self).write(data[: len(data) // 2]))
            return len(data)

        def truncate(self, size=None):
            step(lambda: super(Watched, self).truncate(size), lambda: None)
            return size

    def step(whole, half):
        calls.append(1)
        if stop_at is None or len(calls) < stop_at:
            whole()
        else:
            if len(calls) == stop_at:
                half()
            raise KilledError

    def opened(path, mode, buffering=-1):
        return Watched(path, mode)

    monkeypatch.setattr(journal, "open", opened, raising=False)
    real = journal.Path.unlink
    monkeypatch.setattr(journal.Path, "unlink", lambda self, **o: step(lambda: real(self, **o), lambda: None))
    monkeypatch.setattr(journal.os, "fsync", lambda number: None)
    return calls


def commit_until_killed(path, monkeypatch, stop):
    """Commit in a process of its own, which ends at once at a step; returns how many commits were complete."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    done = 0
    try:
        count_steps(monkeypatch, stop)
        store = Hdf5Store(path)
        store.commit(pair(2), entry(2))
        done += 1
        store.commit(pair(1), entry(1, rows=200))
        done += 1
        store.close()
    finally:
        os._exit(done)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_step(tmp_path, monkeypatch):
    """Two pairs are there; a third is added, and the second is replaced, cut off at every single step."""
    start = tmp_path / "start.h5"
    store = Hdf5Store(start)
    for number in (0, 1):
        store.commit(pair(number), entry(number))
    store.close()
    with monkeypatch.context() as patch:
        steps = count_steps(patch)
        store = Hdf5Store(start)
        store.commit(pair(2), entry(2))
        store.commit(pair(1), entry(1, rows=200))
        store.close()
    assert len(steps) > 10
    assert numbers(start) == {0, 1, 2}
    for stop in range(1, len(steps) + 1):
        path = tmp_path / f"{stop}.h5"
        first = Hdf5Store(path)
        for number in (0, 1):
            first.commit(pair(number), entry(number))
        first.close()
        done = commit_until_killed(path, monkeypatch, stop)
        again = Hdf5Store(path)
        assert again.is_finished(pair(0), {"number": 0}), stop
        assert again.is_finished(pair(1), {"number": 1}), stop
        if done:
            assert again.is_finished(pair(2), {"number": 2}), stop
        again.commit(pair(3), entry(3))
        again.close()
        assert numbers(path) - {2} == {0, 1, 3}, stop


def test_many_pairs_and_replaced_ones(tmp_path):
    """Groups move to other kinds of storage as they grow, and freed space is used again."""
    path = tmp_path / "results.h5"
    for part in range(3):
        store = Hdf5Store(path)
        for number in range(part * 20, part * 20 + 30):
            store.commit(pair(number), entry(number, rows=10 + number + part))
        store.close()
        assert numbers(path) == set(range(part * 20 + 30))


def test_uncommitted_data_is_not_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = JournaledFile(path)
    file.seek(8)
    file.write(b"abcdef")
    file.seek(6)
    assert file.read(100) == b"67abcdef"
    assert path.read_bytes()[:10] == b"0123456789"
    file.close()
    file = JournaledFile(path, 10)
    assert path.read_bytes() == b"0123456789"
    file.seek(2)
    file.write(b"xy")
    file.commit()
    file.close()
    assert path.read_bytes() == b"01xy456789"


def test_a_journal_that_is_cut_short_is_not_applied(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    journal._write_journal(tmp_path / "file.journal", 10, {0: bytearray(b"abcdefghij")})
    data = (tmp_path / "file.journal").read_bytes()
    (tmp_path / "file.journal").write_bytes(data[:-5])
    JournaledFile(path).close()
    assert path.read_bytes() == b"0123456789"
    (tmp_path / "file.journal").write_bytes(data)
    JournaledFile(path).close()
    assert path.read_bytes() == b"abcdefghij"
    assert not (tmp_path / "file.journal").exists()


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "results.h5"
    store = Hdf5Store(path)
    store.commit(pair(0), entry(0))
    real = JournaledFile._append

    def full(self, view):
        if len(view) > 500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, view)

    monkeypatch.setattr(JournaledFile, "_append", full)
    with pytest.raises(OSError, match="No space left") as caught:
        store.commit(pair(1), entry(1))
    assert caught.value.filename == str(path)
    store.close()
    monkeypatch.undo()
    assert numbers(path) == {0}
    store = Hdf5Store(path)
    store.commit(pair(1), entry(1))
    store.close()
    assert numbers(path) == {0, 1}


def test_two_commands_cannot_write_the_same_file(tmp_path):
    first, second = Hdf5Store(tmp_path / "results.h5"), Hdf5Store(tmp_path / "results.h5")
    first.commit(pair(0), entry(0))
    assert first._journal is not None
    first._journal.seek(0, os.SEEK_END)
    first._journal.write(b"not yet committed")
    before = (tmp_path / "results.h5").read_bytes()
    with pytest.raises(InputError, match=r"results\.h5 is in use by process \d+ on "):
        second.commit(pair(1), entry(1))
    assert (tmp_path / "results.h5").read_bytes() == before
    first.close()
    second.commit(pair(1), entry(1))
    second.close()


def test_a_file_that_is_no_hdf5_file_is_left_alone(tmp_path):
    (tmp_path / "mine.h5").write_text("my notes")
    with pytest.raises(InputError, match="is not an HDF5 file"):
        Hdf5Store(tmp_path / "mine.h5").commit(pair(0), entry(0))
    assert (tmp_path / "mine.h5").read_text() == "my notes"


def test_many_threads_may_ask_what_is_finished(tmp_path):
    store = Hdf5Store(tmp_path / "results.h5")
    store.commit(pair(1), entry(1))
    store.close()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: store.is_finished(pair(number), {"number": 1}), [0, 1] * 20))
    store.close()
    assert found == [False, True] * 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="sets a limit of the process")
@pytest.mark.parametrize("limit", [1, 100, 1000])
def test_no_room_for_a_new_file_is_an_error_of_the_system(tmp_path, limit):
    import resource
    import signal

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = Hdf5Store(tmp_path / "results.h5")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            store.commit(pair(0), entry(0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
        store.close()
    assert [path for path in tmp_path.iterdir() if path.name != "results.h5"] == []
    store.commit(pair(0), entry(0))
    store.close()
    assert numbers(tmp_path / "results.h5") == {0}
