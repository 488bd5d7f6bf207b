"""Files read and written whole: a reader never meets half a file, and an interrupted writer leaves none behind."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PathLike = str | os.PathLike[str]


@contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """A temporary path beside `path`, with its suffix, that takes the place of `path` once the block has succeeded.

    On any exception, KeyboardInterrupt included, the temporary file is removed and `path` is left as it was. Links are
    followed: the file they point to is replaced. The folder must exist.
    """
    target = Path(path).resolve()
    _check_target(path, target)
    # Not `tempfile.mkstemp`: its files can be read by nobody else, and stay so under their final name.
    temporary = target.with_name(f".{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        if not temporary.exists():
            raise FileNotFoundError(f"nothing was written for {path}: write the path that the block is given")
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)  # a full disk does not say whose file it had no room for
        raise


def write_bytes_atomically(path: PathLike, data: bytes) -> None:
    """Write a whole file, or on failure nothing: see `atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def read_bytes(path: PathLike) -> bytes:
    """The content of a file that must hold something; errors are one line that names the path."""
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{path} is a folder: give the path of a file")
    if not file.exists():
        raise FileNotFoundError(f"{path} does not exist: check the path")
    data = file.read_bytes()
    if not data:
        raise ValueError(f"{path} is empty: copy or download it again")
    return data


def file_stamp(path: PathLike) -> dict[str, Any] | None:
    """Path, size and modification time of a file, by which a changed file is recognised; `None` if there is none."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return None
    return {"path": str(Path(path).resolve()), "bytes": state.st_size, "modified": state.st_mtime_ns}


def check_folder(folder: PathLike) -> None:
    """Raise before any work is done if a folder cannot be created or written to."""
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
        raise ValueError(f"cannot write {path}: it is a folder or a device, give the path of a file")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {target.parent} does not let you write")
