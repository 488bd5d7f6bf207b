"""Trials: a job is disturbed, runs again, and must end with the results of an undisturbed run."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gocor.utils.files import file_stamp

from .jobs import Job, snapshot
from .processes import NONE, Disturbance, finish, import_what_it_imports, kill_after, start

OPERATIONS = {"train": 320, "match": 260, "hdf5": 40, "eval": 130}  # file operations of a run, or a few more


class Chaos:
    """Disturbs one job in many ways.

    Args:
        job: the job.
        folder: for its runs.
        rng: chooses the moments.

    Attributes:
        counts: what was done, by name.
    """

    def __init__(self, job: Job, folder: Path, rng: random.Random) -> None:
        self.job, self.folder, self.rng = job, folder, rng
        self.counts: Counter[str] = Counter()
        first, place = self._new("first"), self._new("undisturbed")
        import_what_it_imports(job.command, first)
        self.expected = snapshot(first / "out")
        begin = time.monotonic()
        self._finish(place)
        self.seconds = time.monotonic() - begin
        self._check(place)

    def kill(self, times: int) -> int:
        """SIGKILL a run several times in a row, then let it finish; returns how many kills took effect."""
        place, killed = self._new("killed"), 0
        for _ in range(times):
            if self.rng.random() < 0.5:
                code = kill_after(start(self.job.command, place), self.rng.uniform(0, self.seconds))
            else:
                at = self.rng.randint(1, OPERATIONS[self.job.name])
                code = finish(start(self.job.command, place, Disturbance(die_at=at)))
            assert code in (0, -signal.SIGKILL), self._printed(place)
            killed += code == -signal.SIGKILL
        self._finish(place)
        self._check(place)
        self.counts["kills"] += killed
        return killed

    def jump(self) -> None:
        """Let the clock jump in every run, and set the times of all files to the past or the future in between."""
        place = self._new("clock")
        for _ in range(2):
            disturbance = Disturbance(
                die_at=self.rng.randint(1, OPERATIONS[self.job.name]), jumping_clock=self.rng.getrandbits(32)
            )
            code = finish(start(self.job.command, place, disturbance))
            assert code in (0, -signal.SIGKILL), self._printed(place)
            for path in place.rglob("*"):
                moment = time.time() + self.rng.uniform(-1e8, 1e8)
                os.utime(path, (moment, moment))
        self._finish(place, Disturbance(jumping_clock=self.rng.getrandbits(32)))
        self._check(place)
        self.counts["clock changes"] += 1

    def two_at_once(self) -> None:
        """Two processes with the same command: the second is refused, or both give the one result."""
        place, other = self._new("twice"), self._new("other")
        (other / "out").symlink_to(place / "out")
        (place / "out").mkdir()
        processes = [start(self.job.command, where) for where in (place, other)]
        codes = [finish(process) for process in processes]
        for code, where in zip(codes, (place, other), strict=True):
            refused = self.job.exclusive and code == 1 and " is in use by process " in self._printed(where)
            assert code == 0 or refused, (codes, self._printed(where))
        assert 0 in codes
        self._check(place)
        self.counts["refusals"] += codes.count(1)
        self.counts["two at once"] += 1

    def fill_files(self) -> None:
        """Limit the size of files, which ends a write in its middle, as a full disk does."""
        place = self._new("limit")
        limit = self.rng.randint(1, 20_000)
        code = finish(start(self.job.command, place, Disturbance(file_limit=limit)))
        if (place / "printed").stat().st_size < limit:  # else the message did not fit into its own file
            self._check_refusal(place, code, "File too large")
        self._finish(place)
        self._check(place)
        self.counts["size limits"] += 1

    def fill_disk(self) -> None:
        """Give a disk too few pages, then more."""
        place = self._new("disk")
        with mounted(place) as remount:
            remount(f"size={4096 * self.rng.randint(2, 12)}")
            code = finish(start(self.job.command, place))
            self._check_refusal(place, code, "No space left on device")
            remount("size=64m")
            self._finish(place)
            self._check(place)
        self.counts["full disks"] += 1

    def read_only(self) -> None:
        """Make the folder read-only half way: nothing changes, and one line says so."""
        place = self._new("readonly")
        with mounted(place) as remount:
            remount("size=64m")
            disturbance = Disturbance(die_at=self.rng.randint(20, OPERATIONS[self.job.name] // 2))
            finish(start(self.job.command, place, disturbance))
            before = _stamps(place / "out")
            printed = self.folder / f"printed-{self.counts.total()}"
            (place / "printed").unlink()
            (place / "printed").symlink_to(printed)
            remount("ro")
            code = finish(start(self.job.command, place))
            assert code == 1, self._printed(place)
            lines = [line for line in printed.read_text().splitlines() if "warning" not in line]
            assert len(lines) == 1, lines
            assert "not writable" in lines[0] or "Read-only file system" in lines[0], lines
            assert _stamps(place / "out") == before
            remount("rw")
            self._finish(place)
            self._check(place)
        self.counts["read-only folders"] += 1

    def _new(self, kind: str) -> Path:
        place = self.folder / f"{self.job.name}-{kind}-{self.counts.total()}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place

    def _finish(self, place: Path, disturbance: Disturbance = NONE) -> None:
        code = finish(start(self.job.command, place, disturbance))
        assert code == 0, self._printed(place)

    def _check_refusal(self, place: Path, code: int, reason: str) -> None:
        """A run that failed for a full disk says so in one line; one that did not need the room has succeeded."""
        errors = [line for line in self._printed(place).splitlines() if line.startswith("gocor: ")]
        if code:
            assert code == 1, self._printed(place)
            assert reason in errors[-1], self._printed(place)
            assert "Traceback" not in self._printed(place), self._printed(place)
            self.counts["refused writes"] += 1

    def _check(self, place: Path) -> None:
        hidden = [str(path) for path in place.rglob(".*")]
        assert not hidden, f"left behind: {hidden}"
        found = snapshot(place / "out")
        assert found.keys() == self.expected.keys(), found.keys() ^ self.expected.keys()
        different = [name for name, content in found.items() if content != self.expected[name]]
        assert not different, f"{place}: {different} differ from those of an undisturbed run"

    def _printed(self, place: Path) -> Any:
        return (place / "printed").read_text()


def _stamps(folder: Path) -> dict[Path, dict[str, Any] | None]:
    return {path: file_stamp(path) for path in folder.rglob("*")}


@contextmanager
def mounted(folder: Path) -> Any:
    """A file system in memory at a folder; yields the function that changes its options. For the superuser only."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def can_mount(folder: Path) -> bool:
    """Whether this process may mount file systems."""
    try:
        with mounted(folder):
            return True
    except (subprocess.CalledProcessError, OSError):
        return False
