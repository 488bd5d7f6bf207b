"""How long networks, modules and training steps take, and how much memory: what `gocor bench` measures."""

from ..utils.timing import compare
from .memory import peak_memory
from .run import Measurement, Settings, TableResult, measure, surroundings
from .sections import SECTIONS, Case, Table, tables
from .work import Work

__all__ = [
    "SECTIONS",
    "Case",
    "Measurement",
    "Settings",
    "Table",
    "TableResult",
    "Work",
    "compare",
    "measure",
    "peak_memory",
    "surroundings",
    "tables",
]
