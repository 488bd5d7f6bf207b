"""Reading and writing whole files; an interrupted writer leaves no partial file behind."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import InputError

PathLike = str | os.PathLike[str]


@contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path in the same folder and with the same suffix; it replaces `path` when the block succeeds.

    On any exception, KeyboardInterrupt included, the temporary file is removed and `path` stays unchanged. Symbolic
    links are followed: the file that they point to is replaced. The folder must exist.
    """
    target = Path(path).resolve()
    _check_target(path, target)
    # Files of `tempfile.mkstemp` can be read by their owner alone, and would keep these rights.
    temporary = target.with_name(f".{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        if not temporary.exists():
            raise FileNotFoundError(f"nothing was written for {path}: the block must write to the path it is given")
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)  # The error of a full disk names no file, or the temporary one.
        raise


def write_bytes_atomically(path: PathLike, data: bytes) -> None:
    """Write a whole file, or nothing if it fails; see `atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_files(folder: PathLike, files: Mapping[str, bytes]) -> list[Path]:
    """Write files, given by name, to a folder that is created if need be; returns their paths."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes_atomically(Path(folder) / name, data)
    return [Path(folder) / name for name in files]


def read_bytes(path: PathLike) -> bytes:
    """Read a file, which must not be empty."""
    check_file(path)
    return Path(path).read_bytes()


def check_file(path: PathLike) -> None:
    """Check that there is a file at a path, and that it is not empty."""
    file = Path(path)
    if file.is_dir():
        raise InputError(f"{path} is a folder: give the path of a file")
    if not file.exists():
        raise FileNotFoundError(f"{path} does not exist: check the path")
    if file.stat().st_size == 0:
        raise InputError(f"{path} is empty: copy or download it again")


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
        existing = existing.parent
    if not existing.is_dir():
        raise NotADirectoryError(0, "is not a folder", str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(0, "is not writable", str(existing))


def _check_target(path: PathLike, target: Path) -> None:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {target.parent} does not exist, create it first")
    if target.exists() and not target.is_file():
        raise InputError(f"cannot write {path}: it is a folder or a device, give the path of a file")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {target.parent} is not writable")
