"""Results in any store that fsspec can write to, such as `s3://bucket/results`."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...matching.files import DONE, check_formats, parse_done
from ...matching.result import MatchResult
from ...utils.errors import InputError
from ...utils.extras import import_extra
from ..job import Job, Note, Saved, is_up_to_date
from ..pairs import Pair
from .base import Store
from .folder import saved, write_result


class RemoteStore(Store):
    """A store with the files of `FolderStore`. They are written to a local folder first and uploaded, `done.json` last.

    Args:
        root: address of a folder.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._files, self._base = _connect(self._root)

    def __reduce__(self) -> tuple[Any, ...]:  # each process connects by itself
        return RemoteStore, (self._root,)

    def check(self, job: Job) -> None:  # noqa: D102
        check_formats(job.formats)

    def place(self, pair: Pair) -> str:  # noqa: D102
        return f"{self._root}/{pair.name}".rstrip("/")

    def _path(self, pair: Pair) -> str:
        return f"{self._base}/{pair.name}".rstrip("/")

    def is_finished(self, pair: Pair, note: Note) -> bool:
        """See `Store`. `done.json` is uploaded last and removed first, so the files that it lists are not checked."""
        try:
            return is_up_to_date(parse_done(self._files.cat_file(f"{self._path(pair)}/{DONE}")), note)
        except FileNotFoundError:
            return False

    def prepare(self, pair: Pair, result: MatchResult, job: Job, note: Note) -> Saved:  # noqa: D102
        target = self._path(pair)
        with tempfile.TemporaryDirectory(prefix="gocor-") as folder:
            files = write_result(result, Path(folder), job, note)
            with suppress(FileNotFoundError):
                self._files.rm_file(f"{target}/{DONE}")
            self._files.makedirs(target, exist_ok=True)
            for file in files:
                self._files.put_file(str(file), f"{target}/{file.name}")
            return saved(self.place(pair), tuple(f"{self.place(pair)}/{file.name}" for file in files), Path(folder))


def _connect(root: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    fsspec = import_extra("fsspec", "ray", f"a store such as {root}")
    try:
        files, path = fsspec.core.url_to_fs(root)
    except (ValueError, ImportError, OSError) as error:  # an unknown protocol, a package or a server that is missing
        raise InputError(f"cannot write to {root}: {error}") from None
    return files, path
