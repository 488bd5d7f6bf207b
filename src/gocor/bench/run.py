"""Measure tables: variants take turns, rows of a growing series too; memory apart from time."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ..utils.timing import compare
from .memory import peak_memory
from .sections import Case, Table


@dataclass(frozen=True)
class Settings:
    """Where and how often to measure.

    Attributes:
        device: a CPU or a GPU.
        repeats: timed calls of each variant.
        memory: whether to measure peak memory too.
    """

    device: torch.device
    repeats: int
    memory: bool = True


@dataclass(frozen=True)
class Measurement:
    """Median milliseconds and peak MiB, `None` where there was not enough memory or none was measured."""

    ms: float | None
    mib: float | None


@dataclass(frozen=True)
class TableResult:
    """A table, and for every case a measurement of each variant."""

    table: Table
    rows: list[dict[str, Measurement]]

    def ratio(self, row: int, variant: str, *, before: int | None = None, what: str = "ms") -> float | None:
        """A variant's time over that of the row's first variant, or time or memory over its own in another row."""
        value = getattr(self.rows[row][variant], what)
        other = self.rows[row][next(iter(self.rows[row]))] if before is None else self.rows[before][variant]
        reference = getattr(other, what)
        return value / reference if value and reference else None

    def as_json(self) -> dict[str, object]:
        """Plain data: milliseconds, ratio to the row's first variant, peak MiB, and growth over the row before."""
        rows = []
        for index, (case, found) in enumerate(zip(self.table.cases, self.rows, strict=True)):
            variants = {}
            for name, measured in found.items():
                entry = {"ms": measured.ms, "ratio": self.ratio(index, name), "peak_mib": measured.mib}
                if self.table.growth and index:
                    entry["ms_growth"] = self.ratio(index, name, before=index - 1)
                    entry["peak_mib_growth"] = self.ratio(index, name, before=index - 1, what="mib")
                variants[name] = entry
            rows.append({"case": case.name, "variants": variants})
        return {"title": self.table.title, "rows": rows}


def measure(table: Table, settings: Settings, note: Callable[[str], None] = lambda text: None) -> TableResult:
    """Measure a table.

    Args:
        table: what to measure.
        settings: where and how often.
        note: told what is being measured.
    """
    groups = [table.cases] if table.growth else [[case] for case in table.cases]
    times: dict[tuple[str, str], float | None] = {}
    for group in groups:
        note(f"{table.title}: {group[0].name}" if len(group) == 1 else table.title)
        times |= _times(group, settings)
    rows = []
    for case in table.cases:
        row = {}
        for name, work in case.variants.items():
            note(f"{table.title}: memory of {case.name}, {name}")
            mib = None
            if settings.memory and times[case.name, name] is not None:
                mib = peak_memory(work, settings.device, torch.get_num_threads())
            row[name] = Measurement(times[case.name, name], mib)
        rows.append(row)
    return TableResult(table, rows)


def _times(cases: list[Case], settings: Settings) -> dict[tuple[str, str], float | None]:
    """Median milliseconds by case and variant, all taking turns; `None` where the GPU's memory is too small."""
    works = {(case.name, name): work for case in cases for name, work in case.variants.items()}
    try:
        calls = {key: work.build(settings.device) for key, work in works.items()}
        return {**compare(calls, settings.device, settings.repeats)}
    except torch.OutOfMemoryError:
        return dict.fromkeys(works)


def surroundings(settings: Settings, dtype: str) -> dict[str, object]:
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
    return found | {"threads": torch.get_num_threads(), "cores": os.cpu_count(), "simd": _simd()}


def processor() -> str:
    """Name of the CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def _simd() -> str:
    return torch.backends.cpu.get_cpu_capability()
