"""What a store of results does."""

from pathlib import Path
from typing import Any, Protocol

from ...matching.result import MatchResult
from ..job import Job, Note, Saved
from ..pairs import Pair

HDF5_SUFFIXES = (".h5", ".hdf5")


class Store(Protocol):
    """Stores the results of many pairs. A result is stored completely or not at all, even if a process is killed.

    A result is written in two parts. `prepare` runs in parallel to the network, in several threads and processes, and
    may do all of the work. `commit` runs in the main process.
    """

    def check(self, job: Job) -> None:
        """Check, before any work is done, that the results of a job can be written."""

    def place(self, pair: Pair) -> str:
        """Where the result of a pair is, as text to show."""

    def is_finished(self, pair: Pair, note: Note) -> bool:
        """Whether there is a complete result with this note."""

    def prepare(self, pair: Pair, result: MatchResult, job: Job, note: Note) -> Any:
        """Write a result, or turn it into plain data for `commit`."""

    def commit(self, pair: Pair, prepared: Any) -> Saved:
        """Complete a result; it is in the store when this returns. By default, `prepare` has completed it."""
        done: Saved = prepared
        return done

    def close(self) -> None:
        """Release files and locks. By default, there are none."""
        return  # without a body, type checkers would take the method for abstract


def open_store(output: str) -> Store:
    """The store of a path or address: an HDF5 file (`.h5`, `.hdf5`), a store of fsspec (`s3://…`), or a folder."""
    if "://" in output:
        from .remote import RemoteStore

        return RemoteStore(output)
    if Path(output).suffix.lower() in HDF5_SUFFIXES and not Path(output).is_dir():
        from .hdf5 import Hdf5Store

        return Hdf5Store(output)
    from .folder import FolderStore

    return FolderStore(output)
