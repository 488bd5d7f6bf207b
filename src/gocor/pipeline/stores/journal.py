"""A binary file whose changes become visible all at once, so that a process can be killed at any moment.

New data is appended after the committed end of the file, where nothing refers to it yet. Changes before that end are
collected in memory. `commit` writes them to a journal beside the file, and then to the file. If the process is killed
in between, the next one applies the journal; before the journal is complete, the file is as it was.
"""

import hashlib
import io
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from ...utils.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Buffer

PAGE = 4096
MAGIC = b"gocor-journal-1\n"
HEADER = struct.Struct("<QQ")  # size of the file, number of pages
SUFFIX = ".journal"


class JournaledFile(io.RawIOBase):
    """A file object for h5py; see the module's docstring.

    Args:
        path: an existing file. A journal that an interrupted process left behind is applied.
        size: the committed size; what is beyond was never committed and is cut off. `None` for the whole file.
    """

    def __init__(self, path: Path, size: int | None = None) -> None:
        super().__init__()
        recover(path)
        self._path = path
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115 - `close` closes it
        self._committed = self._file.seek(0, os.SEEK_END)
        if size is not None and size < self._committed:
            self._file.truncate(size)
            self._committed = size
        self._size, self._at = self._committed, 0
        self._pages: dict[int, bytearray] = {}  # changed pages before the committed end, by number
        self._broken = False

    def readable(self) -> bool:  # noqa: D102
        return True

    def writable(self) -> bool:  # noqa: D102
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def fileno(self) -> int:  # noqa: D102
        return self._file.fileno()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:  # noqa: D102
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:  # noqa: D102
        return self._at

    def readinto(self, buffer: "Buffer") -> int:  # noqa: D102
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._at)]
        self._file.seek(self._at)
        done = 0
        while done < len(view):
            count = self._file.readinto(view[done:])
            if not count:
                view[done:] = bytes(len(view) - done)  # beyond the end of the file, which has yet to grow
                break
            done += count
        for number in range(self._at // PAGE, -(-(self._at + len(view)) // PAGE)) if self._pages else ():
            if (page := self._pages.get(number)) is not None:
                begin, end = max(self._at, number * PAGE), min(self._at + len(view), number * PAGE + len(page))
                view[begin - self._at : end - self._at] = page[begin - number * PAGE : end - number * PAGE]
        self._at += len(view)
        return len(view)

    def write(self, data: "Buffer") -> int:  # noqa: D102
        view = memoryview(data).cast("B")
        if self._broken:  # what h5py still writes when it closes a file that failed is of no use
            return len(view)
        split = min(max(0, self._committed - self._at), len(view))
        try:
            self._change(view[:split])
            self._append(view[split:])
        except BaseException as error:
            self._broken = True
            if isinstance(error, OSError) and error.errno is not None:  # that of a full disk names no file
                error.filename = str(self._path)
            raise
        self._at += len(view)
        self._size = max(self._size, self._at)
        return len(view)

    def _change(self, view: memoryview) -> None:
        """Change bytes before the committed end, in memory."""
        done = 0
        while done < len(view):
            number, offset = divmod(self._at + done, PAGE)
            if number not in self._pages:
                self._file.seek(number * PAGE)
                length = min(PAGE, self._committed - number * PAGE)
                self._pages[number] = bytearray(self._file.read(length) or b"").ljust(length, b"\0")
            page = self._pages[number]
            count = min(len(page) - offset, len(view) - done)
            page[offset : offset + count] = view[done : done + count]
            done += count

    def _append(self, view: memoryview) -> None:
        """Write bytes beyond the committed end, which nothing refers to yet."""
        self._file.seek(max(self._at, self._committed))
        done = 0
        while done < len(view):
            done += self._file.write(view[done:]) or 0

    def truncate(self, size: int | None = None) -> int:  # noqa: D102
        self._size = self._at if size is None else size
        if self._size >= self._committed and not self._broken:
            self._file.truncate(self._size)
        return self._size

    def commit(self) -> None:
        """Make all changes since the last commit permanent. They survive a power cut, too."""
        if self._broken:
            raise InputError(f"{self._path} could not be written: run the command again")
        try:
            os.fsync(self._file.fileno())
            _write_journal(_journal(self._path), self._size, self._pages)
            _apply(self._file, self._size, self._pages)
            _journal(self._path).unlink()
        except BaseException:
            self._broken = True
            raise
        self._committed = self._size
        self._pages.clear()

    def close(self) -> None:
        """Close the file; changes that were not committed are lost."""
        if not self.closed:
            self._file.close()
        super().close()


def recover(path: Path) -> None:
    """Apply the journal of an interrupted commit if it is complete, and remove it."""
    journal = _journal(path)
    try:
        data = journal.read_bytes()
    except FileNotFoundError:
        return
    body, digest = data[:-32], data[-32:]
    if body.startswith(MAGIC) and hashlib.sha256(body).digest() == digest:
        size, count = HEADER.unpack_from(body, len(MAGIC))
        at, pages = len(MAGIC) + HEADER.size, {}
        for _ in range(count):
            number, length = HEADER.unpack_from(body, at)
            at += HEADER.size
            pages[number] = bytearray(body[at : at + length])
            at += length
        with open(path, "r+b", buffering=0) as file:
            _apply(file, size, pages)
    journal.unlink()


def _journal(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _write_journal(path: Path, size: int, pages: dict[int, bytearray]) -> None:
    parts: list[bytes | bytearray] = [MAGIC, HEADER.pack(size, len(pages))]
    for number, page in sorted(pages.items()):
        parts += [HEADER.pack(number, len(page)), page]
    body = b"".join(parts)
    try:
        with open(path, "wb") as file:
            file.write(body + hashlib.sha256(body).digest())
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _apply(file: io.FileIO, size: int, pages: dict[int, bytearray]) -> None:
    for number, page in sorted(pages.items()):
        file.seek(number * PAGE)
        file.write(page)
    file.truncate(size)
    os.fsync(file.fileno())
