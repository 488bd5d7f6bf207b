"""Results in one HDF5 file, with a group per pair.

The main process writes the file; workers send it arrays. A commit makes a result visible in one step (`journal.py`), so
that the file stays complete and readable even if a process is killed.
"""

import io
import json
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._version import __version__
from ...matching.files import facts_of, parse_done
from ...matching.result import MatchResult
from ...utils.errors import InputError
from ...utils.extras import import_extra
from ...utils.files import PathLike, check_file, check_folder, check_target, remove_leftovers, write_bytes_atomically
from ...utils.locks import claimed
from ..job import Job, Note, Saved, is_up_to_date
from ..pairs import Pair
from .base import Store
from .journal import JournaledFile, recover

DONE = "done"  # the attribute of a group with the entries of done.json
ONLY = "pair"  # the group of the only pair, which has no name
VERSION = ("v108", "v108")  # version of the format: fast with many groups, and without a mark of an open file
FORMATS = ((), ("flo",))
END_OF_FILE = slice(28, 36)  # bytes of the superblock, version 2, that hold the end of the file


@dataclass(frozen=True)
class Entry:
    """A result as plain data: arrays by name, and the entries of `done.json`."""

    arrays: dict[str, NDArray[Any]]
    done: dict[str, Any]


class Hdf5Store(Store):
    """A store in one file. Each pair is a group with `matches`, `flow`, `confidence`, `occlusion`, and its notes.

    Args:
        path: the file.
    """

    def __init__(self, path: PathLike) -> None:
        self._shown, self._path = str(path), Path(path).absolute()
        self._opening = threading.Lock()
        self._file: Any = None  # opened at first use
        self._journal: JournaledFile | None = None
        self._held = ExitStack()  # the lock of the file while it is open

    def __reduce__(self) -> tuple[Any, ...]:  # without the open file
        return Hdf5Store, (self._shown,)

    def check(self, job: Job) -> None:  # noqa: D102
        self._h5py()
        if tuple(job.formats) not in FORMATS:
            got = ",".join(job.formats)
            raise InputError(f"an HDF5 file holds the flow as an array: formats must be flo or none, got {got}")
        if job.pictures:
            raise InputError(f"{self._shown} holds no pictures: give a folder as the output, or leave out --pictures")
        check_folder(self._path.parent)
        if self._path.is_symlink():  # its target's folder may not exist
            check_target(self._path)
        if self._path.exists():  # opening a pipe would wait for its writer
            check_file(self._path, limited=False)

    def place(self, pair: Pair) -> str:  # noqa: D102
        return f"{self._shown}:/{pair.name or ONLY}"

    def is_finished(self, pair: Pair, note: Note) -> bool:  # noqa: D102
        if self._file is None and not self._path.exists():
            return False
        group = self._opened().get(pair.name or ONLY)
        done = {} if group is None else parse_done(group.attrs.get(DONE, "{}"))
        return is_up_to_date(done, note)

    def prepare(self, pair: Pair, result: MatchResult, job: Job, note: Note) -> Entry:  # noqa: D102
        matches = result.matches(job.max_points, job.min_confidence)
        arrays: dict[str, NDArray[Any]] = {"matches": matches}
        if job.formats:
            maps = {"flow": result.flow, "confidence": result.confidence, "occlusion": result.occlusion}
            arrays |= {name: tensor.numpy() for name, tensor in maps.items()}
        return Entry(arrays, facts_of(result, matches) | note)

    def commit(self, pair: Pair, prepared: Entry) -> Saved:  # noqa: D102
        file, name = self._opened(), pair.name or ONLY
        if name in file:
            del file[name]
        group = file.create_group(name)
        for key, array in prepared.arrays.items():
            group.create_dataset(key, data=np.ascontiguousarray(array))
        group.attrs[DONE] = json.dumps(prepared.done)
        file.flush()
        assert self._journal is not None
        self._journal.commit()
        return Saved(self.place(pair), (), prepared.done["mean_confidence"], prepared.done["matches"])

    def close(self) -> None:  # noqa: D102
        if self._file is not None:
            self._file.close()
            assert self._journal is not None
            self._journal.close()
            self._file = self._journal = None
            self._held.close()

    def _h5py(self) -> Any:
        return import_extra("h5py", "hdf5", f"the file {self._shown}")

    def _opened(self) -> Any:
        with self._opening:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with ExitStack() as stack:
                    stack.enter_context(claimed(self._path.with_name(f".{self._path.name}.lock"), self._shown))
                    self._file = self._open()
                    self._held = stack.pop_all()
            return self._file

    def _open(self) -> Any:
        """Open the locked file, after the changes of an interrupted command were completed or undone."""
        h5py = self._h5py()
        remove_leftovers(self._path.parent)
        if not self._path.exists():
            content = io.BytesIO()  # h5py's own errors about a full disk are no OSError
            with h5py.File(content, "w", libver=VERSION) as file:
                file.attrs["gocor"] = __version__
            write_bytes_atomically(self._path, content.getvalue())
        self._journal = JournaledFile(self._path, _committed_size(self._path))
        try:
            return h5py.File(self._journal, "r+", libver=VERSION)
        except OSError as error:
            raise InputError(f"{self._shown} is not an HDF5 file: {error}") from None


def _committed_size(path: Path) -> int | None:
    """The end of the data by the superblock of version 2, which this package writes; `None` for other files."""
    recover(path)
    with open(path, "rb") as file:
        block = file.read(48)
    if block[:8] != b"\x89HDF\r\n\x1a\n" or block[8] != 2:
        return None
    return int.from_bytes(block[END_OF_FILE], "little")
