"""Match and score the pairs of a data set; scored pairs are saved, so that an evaluation can be resumed."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..data.datasets import PairDataset
from ..data.datasets.pair import Item
from ..models.network import MatchingNetwork
from ..utils.arrays import Picture
from ..utils.documents import parse_json
from ..utils.errors import InputError
from ..utils.files import PathLike, read_bytes, remove_leftovers, write_bytes_atomically
from .baselines import Matcher, match_options, network_matcher
from .benchmarks import Benchmark
from .estimates import Estimate, network_estimator
from .metrics import THRESHOLDS
from .protocols import INSIDE, Protocol, Row, score, summarise

Progress = Callable[[str, str], None]
AnyMatcher = Matcher | Callable[[Picture, Picture], Estimate]


@dataclass(frozen=True)
class Evaluation:
    """Figures of a matcher on a data set.

    Attributes:
        dataset: name of the data set.
        protocol: how its pairs were scored.
        rows: what `score` returns for each pair.
        summary: what `summarise` returns for the rows.
    """

    dataset: str
    protocol: Protocol = field(repr=False)
    rows: tuple[Row, ...] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The protocol's own metrics: AEPE in pixels, all others as fractions."""
        return dict(self.summary["metrics"])

    def curve(self) -> tuple[list[float], list[float]]:
        """Thresholds in pixels and PCK at them, mean over pairs."""
        values = self.summary["regions"]["all"]["pair"]
        return [float(threshold) for threshold in THRESHOLDS], [values[f"pck-{t}"] for t in THRESHOLDS]


def evaluate(
    matcher: AnyMatcher | MatchingNetwork,
    dataset: PairDataset,
    protocol: Protocol = INSIDE,
    *,
    save: PathLike | None = None,
    note: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Evaluation:
    """Match the pairs of a data set and score them.

    Args:
        matcher: a network on any device and in any mode, or a function, see `baselines`. A function may also return an
            `Estimate`, whose confidence is scored if the protocol says so.
        dataset: the pairs.
        protocol: how to score them.
        save: folder for the result of each pair, written as soon as it is computed. Results that are there already,
            with the same options, note and protocol, are not computed again.
        note: what results depend on besides data and options, such as weights.
        progress: called with the names of the data set and of the pair after each pair.
        **options: options of a network: fields of `MatchOptions`, with alignment off unless `align` is given.

    Returns:
        The figures. A resumed evaluation gives the same figures as an uninterrupted one.
    """
    if isinstance(matcher, MatchingNetwork):
        if not protocol.enlarge and options.get("min_size") is None:
            options["min_size"] = 0
        chosen = match_options(options).resolve(matcher, flips=protocol.flips).as_dict()
        make = network_estimator if protocol.calibration else network_matcher
        match: AnyMatcher = make(matcher, **chosen, flips=protocol.flips)
    elif options:
        raise InputError(f"{', '.join(options)}: these are options of networks, but the matcher is a function")
    else:
        chosen, match = {}, matcher
    if not len(dataset):
        raise InputError(f"{dataset.name} has no pairs")
    key = {"gocor": __version__, "dataset": dataset.name, **chosen, **_rules(protocol), **(note or {})}
    folder = None if save is None else Path(save)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
    rows: list[Row] = []
    for item in dataset.items:
        row = _saved_or_computed(folder, key | {"pair": item.name}, partial(_score, match, item, protocol))
        if row is not None:
            rows.append(row)
        if progress is not None:
            progress(dataset.name, item.name)
    return Evaluation(dataset.name, protocol, tuple(rows), summarise(protocol, rows))


def evaluate_all(
    matcher: AnyMatcher | MatchingNetwork,
    benchmarks: Mapping[str, Benchmark],
    *,
    save: PathLike | None = None,
    **options: Any,
) -> dict[str, Evaluation]:
    """`evaluate` on several data sets, as `open_benchmark` returns them; each is saved in a folder of its name."""
    return {
        name: evaluate(matcher, dataset, protocol, save=None if save is None else Path(save) / name, **options)
        for name, (dataset, protocol) in benchmarks.items()
    }


def _score(match: AnyMatcher, item: Item, protocol: Protocol) -> Row | None:
    """Read, match and score one pair; `None` if no point of it counts."""
    original = item.read()
    pair = protocol.prepare(original)
    start = time.perf_counter()
    found = match(pair.reference, pair.query)
    found = found if isinstance(found, Estimate) else np.asarray(found)  # It is on the host, so a GPU has finished.
    seconds = time.perf_counter() - start
    row = score(protocol, original, pair, found)
    return None if row is None else row | {"seconds": seconds}


def _saved_or_computed(folder: Path | None, key: Mapping[str, Any], compute: Callable[[], Row | None]) -> Row | None:
    """The row of a pair from its file, if that has the same key; otherwise it is computed and written there."""
    if folder is None:
        return compute()
    key, file = json.loads(json.dumps(key)), folder / _file_name(key["pair"])
    try:
        content = parse_json(read_bytes(file))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or content.get("key") != key or "row" not in content:
        content = {"key": key, "row": compute()}
        write_bytes_atomically(file, (json.dumps(content, indent=1) + "\n").encode())
    return content["row"]


def _rules(protocol: Protocol) -> dict[str, Any]:
    """The fields of a protocol that a pair's row depends on."""
    names = ("inside_only", "rounding", "detailed", "alpha", "flips", "geometry", "calibration")
    return {"prepare": protocol.prepare.__name__, **{name: getattr(protocol, name) for name in names}}


def _file_name(pair: str) -> str:
    readable = re.sub(r"[^\w.-]", "_", pair, flags=re.ASCII).lstrip(".")[:80]
    return f"{readable}-{hashlib.sha256(pair.encode()).hexdigest()[:8]}.json"
