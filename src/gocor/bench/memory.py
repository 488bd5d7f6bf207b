"""Peak memory of a piece of work, the creation of its network and inputs included."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from .work import Work

MIB = 2**20
# The first call of a custom operator imports this module and Numba. Their 200 MiB are not memory of the work.
LAZY_IMPORT = "torch._dynamo"
WARM_UP = Work("layer", "plain", (8, 8), channels=1, backward=True)


def peak_memory(work: Work, device: torch.device, threads: int) -> float | None:
    """Peak memory in MiB.

    On a GPU: the peak of allocated memory after a first call, which compiles kernels and chooses algorithms; for a CUDA
    graph, the memory that torch reserves, because a graph keeps all of it. On a CPU: the growth of the resident set of
    a separate process. `None` on Windows, which does not report it, and if the process ran out of memory.
    """
    if device.type == "cuda":
        return _gpu_peak(work, device) / MIB
    if sys.platform == "win32":
        return None
    # The fork server has imported everything already, so that imports do not count.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, LAZY_IMPORT])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_resident_growth, work, str(device), threads).result()
        except BrokenProcessPool:
            return None


def _gpu_peak(work: Work, device: torch.device) -> int:
    torch.cuda.empty_cache()
    allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    call = work.build(device)
    call()
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    if not work.recorded:
        return torch.cuda.max_memory_allocated(device) - allocated
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device) - reserved


def _resident_growth(work: Work, device: str, threads: int) -> float:
    """MiB by which the peak resident set of this process grows."""
    torch.set_num_threads(threads)
    WARM_UP.build(torch.device(device))()
    before = _peak_resident()
    work.build(torch.device(device))()
    return (_peak_resident() - before) / MIB


def _peak_resident() -> int:
    """Peak resident set of this process, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage, it leaves out the parent process's peak
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
