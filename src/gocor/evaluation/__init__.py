"""Evaluation: benchmarks and their protocols, metrics, baselines, reports and the paper's studies."""

from .baselines import BASELINES, network_matcher
from .benchmarks import Benchmark, open_benchmark
from .estimates import Estimate, network_estimator
from .protocols import INSIDE, Protocol
from .runner import Evaluation, evaluate, evaluate_all

__all__ = [
    "BASELINES",
    "INSIDE",
    "Benchmark",
    "Estimate",
    "Evaluation",
    "Protocol",
    "evaluate",
    "evaluate_all",
    "network_estimator",
    "network_matcher",
    "open_benchmark",
]
