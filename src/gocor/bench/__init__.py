"""Time and peak memory of networks, modules and training steps, as `gocor bench` measures them."""

from ..utils.timing import compare
from .memory import peak_memory
from .run import Measurement, Settings, TableResult, environment, measure
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
    "environment",
    "measure",
    "peak_memory",
    "tables",
]
