"""Workers as processes of this machine, one per device."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from ..utils.errors import is_user_error
from .dispatch import CHUNKS_PER_WORKER, Event
from .job import Job
from .pairs import Pair
from .stores import Store
from .worker import Worker, load_worker

GRACE = 5.0  # seconds until a process that should end is killed


@dataclass(frozen=True)
class _Member:
    device: str
    process: BaseProcess
    connection: Connection


class ProcessCrew:
    """One process per device.

    Args:
        job: how to match.
        store: prepares the results.
        devices: their names; a device may occur several times.
    """

    def __init__(self, job: Job, store: Store, devices: Sequence[str]) -> None:
        self._job, self._store = job, store
        shares = sum(torch.device(device).type == "cpu" for device in devices)
        self._threads = max(1, (os.cpu_count() or 1) // max(1, shares))
        self._members: dict[int, _Member] = {}
        self._number = 0
        for device in devices:
            self._start(device)

    def _start(self, device: str) -> None:
        context = multiprocessing.get_context("spawn")  # forked processes cannot use CUDA
        ours, theirs = context.Pipe()
        arguments = (theirs, self._job, self._store, device, self._threads)
        process = context.Process(target=_serve, args=arguments, daemon=True, name=f"gocor-{device}")
        process.start()
        theirs.close()
        self._number += 1
        self._members[self._number] = _Member(device, process, ours)

    def workers(self) -> list[int]:  # noqa: D102
        return list(self._members)

    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [member.process.pid or 0 for member in self._members.values()]

    def submit(self, worker: int, chunk: int, pairs: Sequence[Pair]) -> None:  # noqa: D102
        with suppress(OSError):  # `wait` finds that the worker is lost
            self._members[worker].connection.send((chunk, pairs))

    def wait(self) -> list[Event]:  # noqa: D102
        connections = {member.connection: worker for worker, member in self._members.items()}
        events = []
        for ready in wait(list(connections)):
            assert isinstance(ready, Connection)
            worker = connections[ready]
            try:
                chunk, outcomes, done, error = ready.recv()
            except (EOFError, OSError):
                events.append(Event(worker, None, lost=self._replace(worker)))
                continue
            if error is not None:
                raise error
            events.append(Event(worker, chunk, outcomes, done))
        return events

    def _replace(self, worker: int) -> str:
        """Start a process in place of one that ended; says how it ended."""
        member = self._members.pop(worker)
        _end(member)
        self._start(member.device)
        code = member.process.exitcode
        how = f"by signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        return f"the process on {member.device} ended {how}"

    def close(self) -> None:  # noqa: D102
        for member in self._members.values():
            member.connection.close()  # a worker ends when it reads the end of its input
        for member in self._members.values():
            _end(member)
        self._members.clear()


def _end(member: _Member) -> None:
    member.connection.close()
    member.process.join(GRACE)
    if member.process.is_alive():
        member.process.kill()
        member.process.join()


def _serve(connection: Connection, job: Job, store: Store, device: str, threads: int) -> None:
    """The main function of a worker process: match the chunks that arrive, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    torch.set_num_threads(threads)
    sending = threading.Lock()

    def send(*message: Any) -> None:
        try:
            with sending:
                connection.send(message)
        except OSError:  # the main process has ended
            os._exit(0)

    try:
        worker = load_worker(job, store, device, quiet=True)
    except Exception as error:
        send(None, (), False, _portable(error))
        return
    room = threading.Semaphore(CHUNKS_PER_WORKER)
    while True:
        try:
            chunk, pairs = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # the main process has ended or has no more pairs; written files are complete
        room.acquire()
        threading.Thread(target=_match, args=(worker, chunk, pairs, send, room), daemon=True).start()


def _match(worker: Worker, chunk: int, pairs: Sequence[Pair], send: Any, room: threading.Semaphore) -> None:
    try:
        for outcome in worker.run(pairs):
            send(chunk, [outcome], False, None)
        send(chunk, (), True, None)
    except Exception as error:
        send(chunk, (), False, _portable(error))
    finally:
        room.release()


def _portable(error: Exception) -> Exception:
    """An error for another process: a bug takes its traceback along as text."""
    return error if is_user_error(error) else RuntimeError(f"in a worker process:\n{traceback.format_exc()}")
