"""Workers as actors of a Ray cluster. Nothing is reported to Ray's makers, and no dashboard is started."""

import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..utils.errors import InputError
from ..utils.extras import import_extra
from .dispatch import CHUNKS_PER_WORKER, Event
from .job import Job, Outcome
from .pairs import Pair
from .stores import Store
from .worker import Worker, load_worker

LOCAL = "local"  # the address that starts a cluster on this machine
CONNECT_SECONDS = 10.0


class Matcher:
    """An actor that holds a network, which it loads for its first chunk; up to two chunks are in work at once."""

    def __init__(self, job: Job, store: Store, device: str) -> None:
        self._job, self._store, self._device = job, store, device
        self._loading = threading.Lock()
        self._worker: Worker | None = None

    def match(self, pairs: Sequence[Pair]) -> list[Outcome]:
        """Match a chunk."""
        with self._loading:
            if self._worker is None:
                self._worker = load_worker(self._job, self._store, self._device, quiet=True)
        return list(self._worker.run(pairs))

    def process(self) -> int:
        """Process id of the actor."""
        return os.getpid()


class RayCrew:
    """Actors of a Ray cluster, one per GPU or, in a cluster without GPUs, one per core.

    Args:
        job: how to match.
        store: prepares the results; every node of the cluster must reach it.
        address: address of the cluster; `"local"` starts one on this machine, which ends with this object.
        device: device of the actors; `"auto"` takes GPUs if the cluster has any.
        workers: number of actors; `None` for as many as the cluster has GPUs or cores.
    """

    def __init__(
        self, job: Job, store: Store, address: str, *, device: str = "auto", workers: int | None = None
    ) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when a cluster starts
        ray = self._ray = import_extra("ray", "ray", "--ray")
        self._job, self._store, self._own = job, store, not ray.is_initialized()
        if self._own:
            _connect(ray, address, workers)
        resources = ray.cluster_resources()
        cuda = device.startswith("cuda") or (device == "auto" and resources.get("GPU", 0) >= 1)
        self._device = "cuda" if cuda else "cpu"
        available = int(resources.get("GPU" if cuda else "CPU", 0))
        if available < 1:
            self.close()
            raise InputError(f"the Ray cluster at {address} has no {'GPU' if cuda else 'CPU'} to work on")
        needs = {"num_gpus": 1} if cuda else {"num_cpus": 1}
        self._actor = ray.remote(max_concurrency=CHUNKS_PER_WORKER, max_restarts=0, **needs)(Matcher)
        self._members: dict[int, Any] = {}
        self._calls: dict[Any, tuple[int, int]] = {}  # chunks in work: worker and number
        self._number = 0
        for _ in range(min(workers or available, available)):
            self._start()

    def _start(self) -> None:
        self._number += 1
        self._members[self._number] = self._actor.remote(self._job, self._store, self._device)

    def workers(self) -> list[int]:  # noqa: D102
        return list(self._members)

    def processes(self) -> list[int]:
        """Process ids of the workers; waits until they have started."""
        return self._ray.get([actor.process.remote() for actor in self._members.values()])

    def submit(self, worker: int, chunk: int, pairs: Sequence[Pair]) -> None:  # noqa: D102
        # Workers have another working directory.
        pairs = [replace(p, reference=p.reference.absolute(), query=p.query.absolute()) for p in pairs]
        self._calls[self._members[worker].match.remote(pairs)] = worker, chunk

    def wait(self) -> list[Event]:  # noqa: D102
        ready, _ = self._ray.wait(list(self._calls), num_returns=1)
        events = []
        for call in ready:
            worker, chunk = self._calls.pop(call)
            try:
                events.append(Event(worker, chunk, self._ray.get(call), done=True))
            except self._ray.exceptions.RayActorError as error:
                events.append(Event(worker, None, lost=f"the Ray worker was lost ({type(error).__name__})"))
                self._replace(worker)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else error from None
        return events

    def _replace(self, worker: int) -> None:
        self._calls = {call: where for call, where in self._calls.items() if where[0] != worker}
        self._ray.kill(self._members.pop(worker))
        self._start()

    def close(self) -> None:  # noqa: D102
        if self._own:
            self._ray.shutdown()
        else:
            for actor in self._members.values():
                self._ray.kill(actor)


def _connect(ray: Any, address: str, workers: int | None) -> None:
    quiet = {"logging_level": "error", "log_to_driver": False}
    if address == LOCAL:
        ray.init(address=LOCAL, num_cpus=workers, include_dashboard=False, **quiet)
        return
    try:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host and port.isdecimal():  # Ray itself would try again and again
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot reach a Ray cluster at {address}: {' '.join(str(error).split())}") from None
