"""Facts about an installation: versions, extras, devices, and the code that runs on each of them."""

import os
import platform
import re
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .._version import __version__
from ..ops import select
from ..utils.precision import cpu_multiplies_bfloat16

PACKAGES = ("torch", "numpy", "opencv-python-headless", "safetensors", "triton", "numba")
NOT_FOR_USERS = ("dev", "docs")  # extras of those who work on gocor
REQUIREMENT = re.compile(r"^(?P<name>[\w.-]+)(?:\[(?P<extras>[\w.,-]+)\])?.*\bextra *== *['\"](?P<extra>[\w.-]+)['\"]")


def versions() -> dict[str, str | None]:
    """Versions by name: gocor, Python, the system, and the packages that matter; `None` if one is not installed."""
    found: dict[str, str | None] = {"gocor": __version__, "python": platform.python_version()}
    found["system"] = f"{platform.system()} {platform.machine()}"
    found |= {name: _version(name) for name in PACKAGES}
    found["cuda"] = torch.version.cuda
    return found


def extras(requirements: list[str] | None = None) -> dict[str, list[str]]:
    """For each extra of gocor, the packages that are missing; empty if the extra is installed.

    Args:
        requirements: as the metadata of a distribution list them; by default those of the installed gocor. There are
            none if gocor runs from a folder that was not installed.
    """
    if requirements is None:
        try:
            requirements = metadata.requires("gocor") or []
        except metadata.PackageNotFoundError:
            requirements = []
    packages: dict[str, set[str]] = {}
    for found in filter(None, map(REQUIREMENT.match, requirements)):
        needed = packages.setdefault(found["extra"], set())
        if found["name"] != "gocor":
            needed.add(found["name"])
        else:  # an extra that includes other extras
            needed.update(*(packages.get(name, ()) for name in (found["extras"] or "").split(",")))
    return {
        extra: sorted(name for name in names if _version(name) is None)
        for extra, names in packages.items()
        if extra not in NOT_FOR_USERS
    }


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The model of the CPU.

    Args:
        info: Linux describes the CPU in this file; `platform.processor` gives its architecture at most there.
    """
    try:
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or "CPU"


def devices() -> list[dict[str, Any]]:
    """The devices that torch can use: name, kind, memory in GiB, and why Triton kernels do not run there."""
    threads = torch.get_num_threads()
    found: list[dict[str, Any]] = [{"device": "cpu", "name": cpu_name(), "threads": threads}]
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        found.append(
            {
                "device": f"cuda:{index}",
                "name": about.name,
                "capability": f"{about.major}.{about.minor}",
                "memory_gib": round(about.total_memory / 2**30, 1),
                "no_kernels_because": _why_no_kernels(torch.device("cuda", index)),
            }
        )
    if torch.backends.mps.is_available():
        found.append({"device": "mps", "name": "Apple GPU"})
    return found


def forms(device: torch.device) -> dict[str, str]:
    """The code that runs on a device for layers of a usual size in float32, by what they do (`gocor.ops.select`)."""
    with torch.device("meta" if device.type == "meta" else device):
        features, small = torch.empty(1, 64, 48, 64), torch.empty(1, 512, 16, 16)

    def local(*, gradients: bool) -> str:
        form = select.choose_local("auto", features, radius=4, linear_start=True, query=False, gradients=gradients)
        return form.name

    def whole(*, gradients: bool) -> str:
        return select.choose_global("auto", small, small, iters=3, weights=None, gradients=gradients).name

    choices: dict[str, Callable[[], str]] = {
        "local GOCor, inference": lambda: local(gradients=False),
        "local GOCor, training": lambda: local(gradients=True),
        "global GOCor, inference": lambda: whole(gradients=False),
        "global GOCor, training": lambda: whole(gradients=True),
        "local correlation": lambda: select.choose_correlation(features, 4),
        "convolutions of matching": lambda: "bf16" if device.type == "cpu" and cpu_multiplies_bfloat16() else "float32",
        "lookups": lambda: "triton" if select.uses_lookup_kernel(features, features, 4) else "torch",
    }
    return {name: choose() for name, choose in choices.items()}


def environment() -> dict[str, str]:
    """Environment variables that change what runs."""
    names = ("GOCOR_FORM", "CUDA_VISIBLE_DEVICES", "NUMBA_DISABLE_JIT", "OMP_NUM_THREADS", "CC")
    return {name: os.environ[name] for name in names if name in os.environ}


def collect(device: torch.device) -> dict[str, Any]:
    """All facts, as data for JSON."""
    return {
        "versions": versions(),
        "executable": sys.executable,
        "extras": extras(),
        "devices": devices(),
        "device": str(device),
        "forms": forms(device),
        "environment": environment(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _why_no_kernels(device: torch.device) -> str | None:
    """Why the Triton kernels do not run on a GPU, and what to do about it; `None` if they do."""
    if select.kernels_run_on(device):
        return None
    if torch.version.hip is not None:
        return "they are for NVIDIA GPUs"
    if not select.HAS_TRITON:
        return "they need the package triton and a C compiler such as gcc"
    return "they need a GPU from Ampere on (compute capability 8.0)"
