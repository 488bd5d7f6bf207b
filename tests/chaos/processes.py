"""Runs of the `gocor` command in forked processes, which are killed from outside or at a chosen file operation.

The parent has imported everything, so that a run starts at once. It computes nothing itself and has one thread.
"""

import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WATCHED = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "fcntl.flock"}


@dataclass(frozen=True)
class Disturbance:
    """What a process has to bear.

    Attributes:
        die_at: number of the file operation at which the process kills itself by SIGKILL; 0 for none.
        jumping_clock: seed of a clock that jumps, backwards too; `None` for the machine's own.
        file_limit: largest size of a file in bytes; `None` for no limit.
    """

    die_at: int = 0
    jumping_clock: int | None = None
    file_limit: int | None = None


NONE = Disturbance()


def start(command: Sequence[str], folder: Path, disturbance: Disturbance = NONE) -> int:
    """Start `gocor COMMAND` in a folder; what it prints goes to the file `printed` there. Returns the process id."""
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        os.chdir(folder)
        output = os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = _run(command, disturbance)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finish(process: int) -> int:
    """Wait for a process; returns its exit code, which is negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def kill_after(process: int, seconds: float) -> int:
    """SIGKILL a process after some time; returns its exit code."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(min(left, 0.002))
    os.kill(process, signal.SIGKILL)
    return finish(process)


def _run(command: Sequence[str], disturbance: Disturbance) -> int:
    import torch

    from gocor import cli

    torch.set_num_threads(1)
    sys.argv = ["gocor", *command]
    if disturbance.jumping_clock is not None:
        _let_the_clock_jump(random.Random(disturbance.jumping_clock))
    if disturbance.file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (disturbance.file_limit, resource.RLIM_INFINITY))
    _watch_files(disturbance.die_at)
    try:
        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _watch_files(die_at: int) -> None:
    """Count operations on files in the folder `out`; at number `die_at`, kill this process."""
    count, out = 0, os.path.abspath("out")

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event not in WATCHED or not arguments:
            return
        path = arguments[0]
        if event == "fcntl.flock" or (isinstance(path, (str, os.PathLike)) and os.path.abspath(path).startswith(out)):
            count += 1
            if count == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _let_the_clock_jump(rng: random.Random) -> None:
    """Let the time of day jump by up to a year in either direction at every call. Monotonic clocks stay as they are."""
    true = time.time
    time.time = lambda: true() + rng.uniform(-3e7, 3e7)
    time.time_ns = lambda: int(1e9 * time.time())
