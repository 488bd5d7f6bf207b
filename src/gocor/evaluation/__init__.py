"""Evaluation: benchmarks and their protocols, metrics, baselines, reports and the paper's studies."""

from .baselines import BASELINES, network_matcher
from .benchmarks import Benchmark, open_benchmark
from .protocols import INSIDE, Protocol
from .runner import Evaluation, evaluate, evaluate_all

__all__ = [
    "BASELINES",
    "INSIDE",
    "Benchmark",
    "Evaluation",
    "Protocol",
    "evaluate",
    "evaluate_all",
    "network_matcher",
    "open_benchmark",
]
