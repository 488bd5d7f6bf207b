"""Reading and writing whole files; an interrupted writer leaves no partial file behind."""

import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import InputError
from .limits import check_bytes, max_bytes
from .locks import LOCK_FILE, BusyError, locked_file, remove_if_empty

PathLike = str | os.PathLike[str]
PIECE = 1 << 16  # bytes

WORKPLACE = re.compile(r"\.gocor-[0-9a-f]{16}\.tmp")  # name of the folder that holds a file while it is written
WORKPLACE_LOCK = ".lock"


@contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path of the same name, in a folder beside `path`; it replaces `path` when the block succeeds.

    On any exception, KeyboardInterrupt included, the temporary file is removed and `path` stays unchanged. If the
    process is killed, `remove_leftovers` removes the file later. Symbolic links are followed: the file that they point
    to is replaced. The folder must exist.
    """
    target = Path(path).resolve()
    _check_target(path, target)
    hidden = None
    try:
        with _workplace(target.parent) as folder:
            hidden = folder / target.name
            try:
                yield hidden
                if not hidden.exists():
                    raise FileNotFoundError(
                        f"nothing was written for {path}: write to the path that the block is given"
                    )
                os.replace(hidden, target)
            finally:
                _empty(folder)  # a database leaves a journal beside it if it fails
    except OSError as error:
        # The error of a full disk names no file, the hidden one or its folder.
        if error.errno is not None and (hidden is None or error.filename in (None, str(hidden))):
            _name(error, path)
        raise


@contextmanager
def _workplace(parent: Path) -> Iterator[Path]:
    """A new folder inside `parent`, which is removed afterwards. A lock in it shows that its process is alive."""
    with ExitStack() as stack:
        while True:
            folder = parent / f".gocor-{secrets.token_hex(8)}.tmp"
            folder.mkdir()
            stack.callback(remove_if_empty, folder)
            try:
                stack.enter_context(locked_file(folder / WORKPLACE_LOCK))
                break
            except (BusyError, FileNotFoundError):  # `remove_leftovers` took the folder before it was locked
                continue
        yield folder


def remove_leftovers(folder: PathLike) -> None:
    """Remove what killed processes were writing to a folder. Files of living processes and all others stay."""
    try:
        places = [Path(entry.path) for entry in os.scandir(folder) if WORKPLACE.fullmatch(entry.name)]
    except OSError:  # there is no such folder
        return
    if (Path(folder) / LOCK_FILE).exists():
        with suppress(OSError, BusyError), locked_file(Path(folder) / LOCK_FILE):
            pass  # the lock was free, and its file is removed now
    for place in places:
        with suppress(OSError, BusyError):
            if not place.is_symlink() and (place / WORKPLACE_LOCK).exists():
                with locked_file(place / WORKPLACE_LOCK) as supported:
                    if supported:
                        _empty(place)
            place.rmdir()


def _empty(workplace: Path) -> None:
    for path in workplace.iterdir():
        if path.name != WORKPLACE_LOCK:
            path.unlink()


def write_bytes_atomically(path: PathLike, data: bytes) -> None:
    """Write a whole file, or nothing if it fails; see `atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_files(folder: PathLike, files: Mapping[str, bytes]) -> list[Path]:
    """Write files, given by name, to a folder that is created if need be; returns their paths."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    for name, data in files.items():
        write_bytes_atomically(Path(folder) / name, data)
    return [Path(folder) / name for name in files]


def check_file(path: PathLike, *, limited: bool = True) -> None:
    """Raise unless a path is that of a regular file; pipes and devices, which may never end, are not.

    Args:
        path: the file.
        limited: its size must be within the limit of `limits`. It is not for archives, which are read in parts.
    """
    try:
        state = os.stat(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist: check the path") from None
    except ValueError:  # a character that no path can have
        raise InputError(f"{str(path)!r} is not a path: check its characters") from None
    _check_state(path, state, limited)


def open_file(path: PathLike, *, limited: bool = True) -> BinaryIO:
    """Open a regular file for reading; see `check_file`."""
    check_file(path, limited=limited)
    # Without O_NONBLOCK, opening a pipe waits for its writer, if a pipe took the place of the file meanwhile.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _check_state(path, os.fstat(file.fileno()), limited)
    except BaseException:
        file.close()
        raise
    return file


def read_bytes(path: PathLike) -> bytes:
    """Read a regular file, which must not be empty, nor larger than the limit of `limits`."""
    limit = max_bytes()
    try:
        with open_file(path) as file:
            data = file.read(os.fstat(file.fileno()).st_size)
            while len(data) <= limit and (
                more := file.read(PIECE)
            ):  # A file may grow, and those of /proc have no size.
                data += more
    except OSError as error:
        if error.errno is not None and error.filename is None:  # of a file that was opened, but cannot be read
            _name(error, path)
        raise
    check_bytes(len(data), str(path))
    if not data:
        raise InputError(f"{path} is empty: copy or download it again")
    return data


def file_stamp(path: PathLike) -> dict[str, Any] | None:
    """Path, size and modification time of a file, by which a changed file is recognised; `None` if there is none."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return None
    return {"path": str(Path(path).resolve()), "bytes": state.st_size, "modified": state.st_mtime_ns}


def check_folder(folder: PathLike) -> None:
    """Check, before any work is done, that a folder can be created and written to."""
    existing = Path(folder)
    while not existing.exists() and existing != existing.parent:
        if existing.is_symlink():
            raise FileNotFoundError(0, "is a symbolic link to a folder that does not exist", str(existing))
        existing = existing.parent
    if not existing.is_dir():
        raise NotADirectoryError(0, "is not a folder", str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(0, "is not writable", str(existing))


def check_target(path: PathLike) -> None:
    """Check, before any work is done, that a file can be written; what killed processes left beside it is removed."""
    folder = Path(path).parent
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist: create the folder first")
    check_folder(folder)
    target = Path(path).resolve()  # a link to a file that does not exist yet is followed
    _check_target(path, target)
    remove_leftovers(target.parent)


def _name(error: OSError, path: PathLike) -> None:
    """Let an error name the path that the caller has given. PyAV's errors do not let themselves be changed."""
    try:
        error.filename = str(path)
    except AttributeError:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _check_state(path: PathLike, state: os.stat_result, limited: bool) -> None:
    if stat.S_ISDIR(state.st_mode):
        raise InputError(f"{path} is a folder: give the path of a file")
    if not stat.S_ISREG(state.st_mode):
        raise InputError(f"{path} is a pipe, a socket or a device: give the path of a file")
    if limited:
        check_bytes(state.st_size, str(path))


def _check_target(path: PathLike, target: Path) -> None:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {target.parent} does not exist, create it first")
    if target.exists() and not target.is_file():
        raise InputError(f"cannot write {path}: it is a folder or a device, give the path of a file")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {target.parent} is not writable")
