"""Locks of files and folders, which the operating system releases when their process ends, however it ends.

They are `flock` locks, and `msvcrt` locks on Windows. On a network file system they hold between machines only if its
server and its mount options support locks, as NFS does by default (not with `nolock`).
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from platform import node

from .errors import InputError

LOCK_FILE = ".gocor.lock"
BUSY = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


class BusyError(Exception):
    """Another process, or another part of this one, holds a lock."""


@contextmanager
def locked_file(path: Path, *, wait: bool = False, text: str = "") -> Iterator[bool]:
    """Hold the lock of a file, which is created for it and removed afterwards.

    Args:
        path: path of the lock file. A process that was killed leaves the file behind, but not the lock.
        wait: wait for the lock; otherwise raise `BusyError` if it is held elsewhere.
        text: content of the file, which says who holds the lock.

    Yields:
        Whether the file system supports locks.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            supported = _lock(handle, wait=wait)
            if _is_same_file(handle, path):  # otherwise the holder before has removed it in the meantime
                break
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    try:
        with suppress(OSError):  # the disk may be full
            os.ftruncate(handle, 0)
            os.write(handle, text.encode())
        yield supported
    finally:
        if os.name == "nt":  # Windows does not remove open files
            os.close(handle)
            with suppress(OSError):
                path.unlink()
        else:
            path.unlink(missing_ok=True)
            os.close(handle)


@contextmanager
def locked_folder(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a folder for this process alone. The folder is created, and removed again if it stays empty.

    Args:
        folder: folder to write to.
        wait: wait until it is free; otherwise an `InputError` says who holds it.

    Yields:
        Whether the file system supports locks. If it does not, nothing keeps other processes away.
    """
    created = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for place in reversed(created):
            stack.callback(remove_if_empty, place)
        yield stack.enter_context(claimed(folder / LOCK_FILE, folder, wait=wait))


@contextmanager
def claimed(path: Path, output: str | os.PathLike[str], *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock that stands for an output; the file `path` says who holds it.

    Args:
        path: path of the lock file; see `locked_file`.
        output: the file or folder to write to, for the message.
        wait: wait until it is free; otherwise an `InputError` says who holds it.

    Yields:
        Whether the file system supports locks.
    """
    with ExitStack() as stack:
        try:
            supported = stack.enter_context(locked_file(path, wait=wait, text=f"process {os.getpid()} on {node()}\n"))
        except BusyError:
            holder = _read_if_possible(path).strip() or "another process"
            raise InputError(f"{output} is in use by {holder}: wait for it, or choose another --output") from None
        yield supported


def remove_if_empty(folder: Path) -> None:
    """Remove a folder unless it holds anything."""
    with suppress(OSError):
        folder.rmdir()


def _read_if_possible(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _lock(handle: int, *, wait: bool) -> bool:
    """Lock an open file; returns whether its file system can do so."""
    try:
        if sys.platform == "win32":
            import msvcrt
            import time

            while True:  # `LK_LOCK` would give up after ten seconds
                try:
                    msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
                    break
                except OSError as error:
                    if not wait or error.errno not in BUSY:
                        raise
                    time.sleep(0.05)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in BUSY:
            raise BusyError from None
        if error.errno in UNSUPPORTED:
            return False
        raise
    return True
