"""Measurement of benchmark tables."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ..utils.timing import compare
from .memory import peak_memory
from .sections import Case, Table


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        device: device to measure on, a CPU or a GPU.
        repeats: number of timed calls of each variant.
        memory: measure peak memory too.
    """

    device: torch.device
    repeats: int
    memory: bool = True


@dataclass(frozen=True)
class Measurement:
    """Median time in ms and peak memory in MiB; `None` if memory ran out or was not measured."""

    ms: float | None
    mib: float | None


@dataclass(frozen=True)
class TableResult:
    """A table, and a measurement of each variant in every row."""

    table: Table
    rows: list[dict[str, Measurement]]

    def ratio(self, row: int, variant: str) -> float | None:
        """Time of a variant over the time of the row's first variant."""
        first = next(iter(self.rows[row]))
        return _quotient(self.rows[row][variant].ms, self.rows[row][first].ms)

    def growth(self, row: int, variant: str, what: Literal["ms", "mib"]) -> float | None:
        """Time or memory of a variant over its own in the row before."""
        return _quotient(getattr(self.rows[row][variant], what), getattr(self.rows[row - 1][variant], what))

    def as_json(self) -> dict[str, object]:
        """Plain data: milliseconds, ratio to the row's first variant, peak MiB, and growth over the row before."""
        rows = []
        for index, (case, found) in enumerate(zip(self.table.cases, self.rows, strict=True)):
            variants = {}
            for name, measured in found.items():
                entry = {"ms": measured.ms, "ratio": self.ratio(index, name), "peak_mib": measured.mib}
                if self.table.growth and index:
                    entry["ms_growth"] = self.growth(index, name, "ms")
                    entry["peak_mib_growth"] = self.growth(index, name, "mib")
                variants[name] = entry
            rows.append({"case": case.name, "variants": variants})
        return {"title": self.table.title, "rows": rows}


def measure(table: Table, settings: Settings, report: Callable[[str], None] = lambda text: None) -> TableResult:
    """Measure a table. Memory is measured apart from time.

    Args:
        table: the table to measure.
        settings: device and number of repeats.
        report: called with a line that says what is being measured.
    """
    groups = [table.cases] if table.growth else [[case] for case in table.cases]
    times: dict[tuple[str, str], float | None] = {}
    for group in groups:
        report(f"{table.title}: {group[0].name}" if len(group) == 1 else table.title)
        times |= _times(group, settings)
    rows = []
    for case in table.cases:
        row = {}
        for name, work in case.variants.items():
            mib = None
            if settings.memory and times[case.name, name] is not None:
                report(f"{table.title}: memory of {case.name}, {name}")
                mib = peak_memory(work, settings.device, torch.get_num_threads())
            row[name] = Measurement(times[case.name, name], mib)
        rows.append(row)
    return TableResult(table, rows)


def _times(cases: list[Case], settings: Settings) -> dict[tuple[str, str], float | None]:
    """Median milliseconds by case and variant, measured in turns; `None` if the GPU runs out of memory."""
    works = {(case.name, name): work for case in cases for name, work in case.variants.items()}
    try:
        calls = {key: work.build(settings.device) for key, work in works.items()}
        return {**compare(calls, settings.device, settings.repeats)}
    except torch.OutOfMemoryError:
        return dict.fromkeys(works)


def _quotient(value: float | None, reference: float | None) -> float | None:
    return value / reference if value and reference else None


def environment(settings: Settings, dtype: str) -> dict[str, object]:
    """What the numbers depend on: device, versions, precision, threads."""
    cuda = settings.device.type == "cuda"
    found: dict[str, object] = {
        "device": torch.cuda.get_device_name(settings.device) if cuda else processor(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "dtype": dtype,
        "repeats": settings.repeats,
    }
    if cuda:
        precision = {"matmul": torch.backends.cuda.matmul.allow_tf32, "convolutions": torch.backends.cudnn.allow_tf32}
        return found | {"cuda": torch.version.cuda, "tf32": precision}
    simd = torch.backends.cpu.get_cpu_capability()
    return found | {"threads": torch.get_num_threads(), "cores": os.cpu_count(), "simd": simd}


def processor() -> str:
    """Name of the CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())
