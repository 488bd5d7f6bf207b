"""Matching and scoring pairs, one after the other: what is done is saved, and not done again."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._version import __version__
from ..data.datasets import PairDataset
from ..models.network import MatchingNetwork
from ..utils.files import PathLike, write_bytes_atomically
from .baselines import Matcher, network_matcher
from .benchmarks import Benchmark
from .metrics import THRESHOLDS
from .protocols import INSIDE, Protocol, Row, score, summarise

Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class Evaluation:
    """Figures of a matcher on a data set; `summary` is what `summarise` returns, `rows` what it was made from."""

    dataset: str
    protocol: Protocol = field(repr=False)
    rows: tuple[Row, ...] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The protocol's own metrics: AEPE in pixels, everything else as shares of one."""
        return dict(self.summary["metrics"])

    def curve(self) -> tuple[list[float], list[float]]:
        """Thresholds in pixels and PCK at them, mean over pairs."""
        values = self.summary["regions"]["all"]["pair"]
        return [float(threshold) for threshold in THRESHOLDS], [values[f"pck-{t}"] for t in THRESHOLDS]


def evaluate(
    matcher: Matcher | MatchingNetwork,
    dataset: PairDataset,
    protocol: Protocol = INSIDE,
    *,
    iters_local: int | None = None,
    iters_global: int | None = None,
    min_size: int | None = None,
    max_size: int | None = None,
    align: bool = False,
    save: PathLike | None = None,
    note: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Match the pairs of a data set and score them.

    Args:
        matcher: a network, on whatever device it is (its mode is restored), or a function, see `baselines`.
        dataset: the pairs.
        protocol: how to score them.
        iters_local: of a network, see `MatchingNetwork.forward`.
        iters_global: of a network, see `MatchingNetwork.forward`.
        min_size: of a network, see `MatchingNetwork.forward`.
        max_size: of a network, see `MatchingNetwork.forward`.
        align: of a network, see `network_matcher`.
        save: folder where the result of each pair is written, whole or not at all, as soon as it is there; those that
            are there already, with the same note and protocol, are not computed again.
        note: what the results depend on beside the data: weights, options.
        progress: called with the names of the data set and of the pair after each.

    Returns:
        The figures. They do not depend on whether they were computed in one go.
    """
    options = {"iters_local": iters_local, "iters_global": iters_global, "min_size": min_size, "max_size": max_size}
    if isinstance(matcher, MatchingNetwork):
        options["min_size"] = matcher.min_size if min_size is None else min_size
        match = network_matcher(matcher, **options, align=align, flips=protocol.flips)
        options["align"] = align
    elif align or any(value is not None for value in options.values()):
        raise ValueError(f"{', '.join(options)} are options of networks, the matcher is a function")
    else:
        match = matcher
    if not len(dataset):
        raise ValueError(f"{dataset.name} has no pairs")
    key = {"gocor": __version__, "dataset": dataset.name, **options, **_rules(protocol), **(note or {})}
    key = json.loads(json.dumps(key))
    folder = None if save is None else Path(save)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for item in dataset.items:
        file = None if folder is None else folder / _file_name(item.name)
        done = None if file is None else _saved(file, key | {"pair": item.name})
        if done is None:
            original = item.read()
            pair = protocol.prepare(original)
            start = _now(matcher)
            flow = match(pair.reference, pair.query)
            seconds = _now(matcher) - start
            row = score(protocol, original, pair, np.asarray(flow))
            done = {"row": None if row is None else row | {"seconds": seconds}}
            if file is not None:
                content = {"key": key | {"pair": item.name}, **done}
                write_bytes_atomically(file, (json.dumps(content, indent=1) + "\n").encode())
        if done["row"] is not None:
            rows.append(done["row"])
        if progress is not None:
            progress(dataset.name, item.name)
    return Evaluation(dataset.name, protocol, tuple(rows), summarise(protocol, rows))


def evaluate_all(
    matcher: Matcher | MatchingNetwork,
    benchmarks: Mapping[str, Benchmark],
    *,
    save: PathLike | None = None,
    **options: Any,
) -> dict[str, Evaluation]:
    """`evaluate` on several data sets, as `open_benchmark` gives them; each is saved to a folder of its name."""
    return {
        name: evaluate(matcher, dataset, protocol, save=None if save is None else Path(save) / name, **options)
        for name, (dataset, protocol) in benchmarks.items()
    }


def _rules(protocol: Protocol) -> dict[str, Any]:
    """All of a protocol that a pair's row depends on."""
    return {
        "prepare": protocol.prepare.__name__,
        "inside_only": protocol.inside_only,
        "rounding": protocol.rounding,
        "detailed": protocol.detailed,
        "alpha": protocol.alpha,
        "flips": protocol.flips,
        "geometry": protocol.geometry,
    }


def _now(matcher: Matcher | MatchingNetwork) -> float:
    """The time, after everything that a network was asked to do."""
    if isinstance(matcher, MatchingNetwork) and next(matcher.parameters()).is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def _file_name(pair: str) -> str:
    readable = re.sub(r"[^\w.-]", "_", pair, flags=re.ASCII).lstrip(".")[:80]
    return f"{readable}-{hashlib.sha256(pair.encode()).hexdigest()[:8]}.json"


def _saved(file: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("key") == key and "row" in content else None
