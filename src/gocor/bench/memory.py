"""Peak memory of a piece of work: what it takes from before network and inputs are made until it is done."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from .work import Work

MIB = 2**20
# Imported by the first call of a custom operator, as Numba is where it is used: 200 MiB that are none of the work's.
LAZY = "torch._dynamo"
WARM_UP = Work("layer", "plain", (8, 8), channels=1, backward=True)


def peak_memory(work: Work, device: torch.device, threads: int) -> float | None:
    """Peak memory in MiB.

    On a GPU, torch's count of allocated bytes, once kernels are chosen and compiled, or of those that it keeps, where a
    CUDA graph holds all its memory for ever; on a CPU, growth of the resident set of a process that does nothing else.
    `None` where the system does not tell (Windows) or the process was killed for its memory.
    """
    if device.type == "cuda":
        return _on_gpu(work, device) / MIB
    if sys.platform == "win32":
        return None
    # A server that has imported all that is needed forks a process for each piece of work.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, LAZY])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_growth, work, str(device), threads).result()
        except BrokenProcessPool:
            return None


def _on_gpu(work: Work, device: torch.device) -> int:
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


def _growth(work: Work, device: str, threads: int) -> float:
    torch.set_num_threads(threads)
    WARM_UP.build(torch.device(device))()
    before = _peak_resident()
    work.build(torch.device(device))()
    return (_peak_resident() - before) / MIB


def _peak_resident() -> int:
    """Bytes of this process that were resident at most."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the process that started this one held
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
