"""The process that reads mutated files. Its memory is limited, and what it prints on stderr counts as a failure."""

import os
import resource
import shutil
import tempfile
import traceback
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from .samples import MARKER, Files, Target, make_targets

MEMORY = 1 << 30  # bytes beyond what the process takes before the first case
LIMIT = "64M"  # GOCOR_MAX_BYTES
REFUSED = ("pth", "old pth", "pickle")  # valid files that do not fit the network, or hold code
FAILURES = ("traceback", "memory", "chatter", "leftover", "executed", "message")


def work(connection: Connection, root: Path, seed: int, first: int, last: int) -> None:
    """Read the cases `first` to `last - 1` in the folder `root`; report number, target, outcome and details of each.

    The outcome is `"read"`, `"refused"` (one line for the user) or one of `FAILURES`.
    """
    import cv2
    import torch

    from .corpus import CORPUS, corpus_files
    from .mutate import mutate

    os.environ["GOCOR_MAX_BYTES"] = LIMIT
    chatter, temporary, place = root / "stderr", root / "tmp", root / "cases"
    temporary.mkdir()
    place.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    os.chdir(place)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    targets = make_targets(temporary)
    names = list(targets)
    for name, target in targets.items():  # Valid files are read. Libraries make their folders now.
        _write(place / "case", target.files)
        assert _read(target, place / "case")[0] == ("refused" if name in REFUSED else "read"), name
        _clear(place, temporary)
    with chatter.open("wb") as file:
        os.dup2(file.fileno(), 2)
    _limit_memory()
    for number in range(first, last):
        if number < len(CORPUS):
            label, name, files = corpus_files(targets, number)
        else:
            label, name = "", names[number % len(names)]
            files = mutate(targets[name], Random(f"{seed}/{number}"))
        connection.send((number, name, "", ""))
        outcome, detail = _run(targets[name], files, place, chatter, temporary)
        connection.send((number, name, outcome, f"{label} {detail}".strip()))


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _run(target: Target, files: Files, place: Path, chatter: Path, temporary: Path) -> tuple[str, str]:
    folder = place / "case"
    _write(folder, files)
    before, printed = _listing(place), chatter.stat().st_size
    try:
        outcome, detail = _read(target, folder)
        after = _listing(place)
        if (place / MARKER).exists() or (folder / MARKER).exists():
            return "executed", detail
        if after - before or _listing(temporary):
            return "leftover", ", ".join(sorted(after - before) + sorted(_listing(temporary)))
        if chatter.stat().st_size > printed:
            return "chatter", chatter.read_bytes()[printed:].decode(errors="replace")[:500]
        return outcome, detail
    finally:
        _clear(place, temporary)


def _clear(*folders: Path) -> None:
    for folder in folders:
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _read(target: Target, folder: Path) -> tuple[str, str]:
    from gocor.cli.errors import describe
    from gocor.data.synthetic.sources import SkippedFilesWarning
    from gocor.models.weights import UntrainedWarning
    from gocor.utils.errors import is_out_of_memory, is_user_error

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", SkippedFilesWarning)
        warnings.simplefilter("ignore", UntrainedWarning)
        try:
            target.read(folder)
        except Exception as error:
            if is_out_of_memory(error):
                return "memory", traceback.format_exc(limit=-4)
            if not is_user_error(error):
                return "traceback", traceback.format_exc(limit=-4)
            line = describe(error)
            wrong = not line.strip() or len(line) > 1500
            return "message" if wrong else "refused", line[:300]
    return "read", ""


def _write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content == "fifo":
            os.mkfifo(path)
        elif content == "folder":
            path.mkdir()
        elif content == "endless":
            path.symlink_to("/dev/zero")
        elif content == "empty":
            path.touch()


def _listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
