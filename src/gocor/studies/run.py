"""Training of the variants that are missing, and their evaluation."""

import math
import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from ..evaluation.baselines import network_matcher
from ..evaluation.benchmarks import Benchmark
from ..evaluation.named_matchers import NamedMatcher, load_later, load_seeded
from ..evaluation.runner import Evaluation
from ..matching.options import MatchOptions
from ..models.network import MatchingNetwork
from ..models.registry import sketch
from ..models.weights import UntrainedWarning, choose_device
from ..training.config import FILE as CONFIG
from ..training.config import TrainConfig, make_config, merge_options, read_toml
from ..training.loop import train
from ..training.run import FINAL
from ..training.sources import SOURCE_OPTIONS, Sources, open_sources
from ..utils.errors import InputError
from ..utils.timing import compare
from .definitions import Study, Variant
from .learnt import Learnt, learnt_values

TIMED_PAIRS = 8  # pairs of a data set that are timed, evenly spaced, if rows are also scored
QUICK = {"network": {"width": 0.125, "local.radius": 2}, "size": 96, "batch": 2, "steps": 40, "validation_pairs": 4}
"""Options of `--quick`: networks an eighth as wide, whose features are random, and few steps."""

Scores = dict[str, dict[str, float]]
"""By data set and metric; `ms` is the run time in milliseconds."""


@dataclass
class StudyRun:
    """A study in progress.

    Attributes:
        study: what is compared.
        benchmarks: what variants are evaluated on, by name.
        folder: folder of all files; scores of pairs are in its subfolder `pairs`.
        runs: folder of training runs, `runs` in `folder` by default. Studies that share it train common runs once.
        roots: where the pairs of each data set come from, by its name. Saved scores of pairs from another place are
            not used again.
        training: options of every run, as of `gocor train`: `data`, `objects`, `steps`, ….
        seeds: numbers of the seeds.
        device: see `load_model`.
        match: options of matching that all rows share.
        weights: weights to study in place of training, if all rows share one run: a file, or `"default"`.
        scores: scores of each row, one entry per seed.
        learnt: what the GOCor layers of each row learnt, likewise, if the study shows that.
    """

    study: Study
    benchmarks: Mapping[str, Benchmark]
    folder: Path
    training: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = (0,)
    device: str = "auto"
    match: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    runs: Path | None = None
    roots: Mapping[str, str] = field(default_factory=dict)
    scores: dict[str, list[Scores]] = field(default_factory=dict)
    learnt: dict[str, list[dict[str, Learnt]]] = field(default_factory=dict)
    _opened: tuple[list[Any], Sources] | None = field(default=None, init=False, repr=False)

    def spread(self, label: str) -> dict[str, dict[str, tuple[float, float | None]]]:
        """Mean of a row over its seeds and standard deviation between them (`None` for one seed), by data set."""
        runs = self.scores[label]
        return {
            name: {metric: _mean_and_spread([run[name][metric] for run in runs]) for metric in metrics}
            for name, metrics in runs[0].items()
        }

    def config(self, variant: Variant, seed: int) -> TrainConfig:
        """The options of a variant's training run."""
        own: dict[str, Any] = {
            "model": variant.model,
            "network": dict(variant.network),
            "seed": seed,
            "device": self.device,
            "output": str(self.run_folder(variant, seed)),
        }
        preset = {} if "flow" in self.training else {"preset": variant.preset}
        return make_config(merge_options(preset | self._fitting(variant), own))

    def sources(self, config: TrainConfig) -> Sources:
        """The pairs of a training run: those of the run before, which take time to read, if they are the same."""
        options = [getattr(config, name) for name in SOURCE_OPTIONS]
        if self._opened is None or self._opened[0] != options:
            self._opened = None  # frees the memory of the other photos first
            self._opened = options, open_sources(config, choose_device(config.device))
        return self._opened[1]

    def run_folder(self, variant: Variant, seed: int) -> Path:
        """Folder of a variant's training run, named by what is trained, so that equal variants share it."""
        options = [f"{name}-{value}" for name, value in sorted(variant.network.items())]
        pairs = "flow" if "flow" in self.training else self.training.get("preset", variant.preset)
        name = "-".join([variant.model, *options, str(pairs), f"seed-{seed}"])
        return (self.runs or self.folder / "runs") / name

    def matcher(self, variant: Variant, seed: int) -> NamedMatcher:
        """The trained network of a row. The run-time study uses untrained networks, which take the same time.

        Small images are not enlarged, as in the paper, neither for scores nor for run times.
        """
        weights = self.weights
        if weights is None and variant.trained:
            weights = str(self.run_folder(variant, seed) / FINAL)
        options = MatchOptions(
            align=False, **({"max_size": None, "min_size": 0} | dict(self.match) | dict(variant.match))
        )
        matcher = load_later(variant.model, weights, self.device, options)
        if variant.trained:
            return matcher
        untrained = partial(_start_values, variant.model, self._fitting(variant).get("network", {}), self.device)
        return NamedMatcher(matcher.label, cache(untrained), matcher.options, matcher.note)

    def _fitting(self, variant: Variant) -> dict[str, Any]:
        """The options of every run, without those that a variant's network does not have, such as a global η."""
        options = dict(self.training)
        if "network" in options:
            options["network"] = {
                name: value for name, value in options["network"].items() if _has(variant.model, name, value)
            }
        return options


def run_study(run: StudyRun, *, stop_after: float | None = None, quiet: bool = False) -> bool:
    """Train what is missing, evaluate it, and fill `run.scores`.

    Args:
        run: the study. Finished training runs and scored pairs in its folder are used again; a training run that was
            interrupted is resumed.
        stop_after: minutes after which the study stops, in a training run or between rows. Run it again to continue.
        quiet: print nothing about training.

    Returns:
        Whether the study is complete.
    """
    trained = {run.run_folder(variant, 0): variant for variant in run.study.variants if variant.trained}
    if run.weights is not None and len(trained) != 1:
        raise InputError(
            f"{run.study.name} trains {len(trained)} variants: weights can replace the training of one variant only"
        )
    seeds = run.seeds if trained and run.weights is None else run.seeds[:1]
    end = math.inf if stop_after is None else time.monotonic() + 60 * stop_after
    for seed in seeds if run.weights is None else ():
        for variant in trained.values():
            if not _train(run, variant, seed, end, quiet=quiet):
                return False
    for variant in run.study.variants:
        if time.monotonic() >= end:
            return False
        run.scores[variant.label] = [_evaluate(run, variant, seed) for seed in seeds]
        if run.study.learnt:
            run.learnt[variant.label] = [learnt_values(_network(run, variant, seed)) for seed in seeds]
    if run.study.timed:
        for index, seed in enumerate(seeds):
            _time(run, seed, index)
    return True


def _train(run: StudyRun, variant: Variant, seed: int, end: float, *, quiet: bool) -> bool:
    """Train a variant until the clock shows `end`; returns whether its training is complete."""
    config, folder = run.config(variant, seed), run.run_folder(variant, seed)
    if (folder / CONFIG).exists():
        before, now = read_toml(folder / CONFIG), _saved(config)
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if [name for name in changed if name not in ("output", "device")]:
            raise InputError(f"{folder} was trained with other options ({', '.join(changed)}): give another folder")
    if (folder / FINAL).exists():
        return True
    left = (end - time.monotonic()) / 60
    if left <= 0:
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    limit = None if left == math.inf else left
    return train(config, resume=True, stop_after=limit, sources=run.sources(config), quiet=quiet).finished


def _saved(config: TrainConfig) -> dict[str, Any]:
    """Options as they are saved: those that are `None` or empty tables are left out."""
    return {name: value for name, value in vars(config).items() if value not in (None, {})}


def _evaluate(run: StudyRun, variant: Variant, seed: int) -> Scores:
    if not variant.trained:
        return {name: {} for name in run.benchmarks}
    save = run.folder / "pairs" / f"{_file_name(variant.label)}-seed-{seed}"
    matcher = run.matcher(variant, seed)
    found: dict[str, Evaluation] = {}
    for name, benchmark in run.benchmarks.items():
        note = {"root": run.roots[name]} if name in run.roots else None
        found |= matcher.evaluate({name: benchmark}, save=save, note=note)
    return {name: evaluation.metrics for name, evaluation in found.items()}


def _time(run: StudyRun, seed: int, index: int) -> None:
    """Add the run time of every row: mean over pairs of the median of calls in turns, after a warm-up.

    A study of times alone takes all pairs, as the paper does.
    """
    scored = any(variant.trained for variant in run.study.variants)
    for name, (dataset, protocol) in run.benchmarks.items():
        pairs = (protocol.prepare(item.read()) for item in (dataset.spread(TIMED_PAIRS) if scored else dataset).items)
        calls, device = {}, torch.device("cpu")
        for variant in run.study.variants:
            matcher, network = run.matcher(variant, seed), _network(run, variant, seed)
            device = next(network.parameters()).device
            calls[variant.label] = network_matcher(network, **matcher.keywords())
        times: dict[str, list[float]] = {label: [] for label in calls}
        for pair in pairs:
            timed = {label: partial(match, pair.reference, pair.query) for label, match in calls.items()}
            for label, milliseconds in compare(timed, device, 3).items():
                times[label].append(milliseconds)
        for label, values in times.items():
            run.scores[label][index][name]["ms"] = statistics.mean(values)


def _network(run: StudyRun, variant: Variant, seed: int) -> MatchingNetwork:
    network = run.matcher(variant, seed).load()
    assert isinstance(network, MatchingNetwork)
    return network


def _start_values(model: str, network: Mapping[str, Any], device: str) -> MatchingNetwork:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrainedWarning)
        return load_seeded(model, None, device, options=network)


@cache
def _has(model: str, option: str, value: Any) -> bool:
    try:
        sketch(model, {option: value})
    except InputError as error:
        if "has no option" not in str(error):
            raise
        return False
    return True


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


def _file_name(label: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in label)
