"""The weights that ship, as data: the TOML file beside each `.safetensors` file says what it is and how it was made."""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ..utils.errors import InputError
from ..utils.toml import to_toml

SHIPPED = Path(__file__).parents[1] / "weights"
FEATURES = "vgg16"  # the file of frozen VGG-16 features, which several networks share
HEADLINE = "hpatches_v", "pck5"  # data set and metric that stand for a network in short tables
REPAIR = "reinstall gocor, or restore the file from its repository"


@dataclass(frozen=True)
class TrainingRun:
    """One `gocor train` run of those that made a file of weights.

    Attributes:
        command: the command line.
        steps: optimiser steps that it took.
        seed: seed of the initial values and of the training pairs.
        time: duration and device.
        note: further remarks.
    """

    command: str
    steps: int
    seed: int
    time: str
    note: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Scores of a network on data sets.

    Attributes:
        protocol: `"network"` for a single forward pass; `"match"` for `gocor match` with its alignment.
        command: what printed the scores.
        scores: scores by data set and metric: `aepe` in pixels; `pck1`, `pck5`, `auc3`, `auc5`, `auc10` in percent.
    """

    protocol: str
    command: str
    scores: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class WeightsRow:
    """What is known about one file of weights.

    Attributes:
        model: name of the network, empty for features that networks share.
        summary: one sentence about the weights.
        sha256: SHA-256 of the file.
        bytes: size of the file.
        parameters: number of parameters of the network, shared frozen features included.
        licence: licence of the weights.
        options: options in which the network differs from the registered one, see `variants`.
        data: data that the weights were trained on.
        made_with: versions of the software that trained them.
        metrics: metrics of the last run's validation: `epe` in pixels, `pck1`, `pck3` and `pck5` in percent.
        runs: the training runs, first to last; each starts from the weights of the one before.
        evaluations: scores on data sets.
    """

    model: str
    summary: str
    sha256: str
    bytes: int
    parameters: int
    licence: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    made_with: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    runs: tuple[TrainingRun, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()

    @property
    def headline(self) -> float | None:
        """PCK-5 of the network alone on the HPatches viewpoint samples, in percent; `None` if it was not measured."""
        dataset, metric = HEADLINE
        found = [e.scores[dataset][metric] for e in self.evaluations if e.protocol == "network" and dataset in e.scores]
        return next(iter(found), None)

    def to_toml(self) -> str:
        """The row as a TOML document, which `read_row` reads."""
        return to_toml(asdict(self))


def read_row(path: Path) -> WeightsRow:
    """The row that a TOML file holds."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    runs = tuple(TrainingRun(**run) for run in content.pop("runs", ()))
    evaluations = tuple(Evaluation(**evaluation) for evaluation in content.pop("evaluations", ()))
    return WeightsRow(**content, runs=runs, evaluations=evaluations)


def describe(facts: Mapping[str, Any], content: bytes, *, summary: str, parameters: int) -> WeightsRow:
    """The row of a file of weights that has just been made.

    Args:
        facts: `model` and `licence`, and if known `data`, `made_with`, `metrics`, and `command`, `steps`, `seed` and
            `time` of the training run. Other entries are ignored.
        content: content of the file.
        summary: see `WeightsRow`.
        parameters: see `WeightsRow`.
    """
    run = [name for name in ("command", "steps", "seed", "time") if name in facts]
    return WeightsRow(
        summary=summary,
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        parameters=parameters,
        runs=(TrainingRun(**{name: facts[name] for name in run}),) if len(run) == 4 else (),
        **{
            name: facts[name]
            for name in ("model", "options", "licence", "data", "made_with", "metrics")
            if name in facts
        },
    )


@cache
def shipped() -> dict[str, WeightsRow]:
    """The rows of all weights that ship, by name of the file."""
    return {path.stem: read_row(path) for path in sorted(SHIPPED.glob("*.toml"))}


@cache
def shipped_file(name: str) -> Path:
    """Path of weights that ship. Their SHA-256 is checked at the first call in a process."""
    row, path = shipped()[name], SHIPPED / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, although it is part of gocor: {REPAIR}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != row.sha256:
        raise InputError(f"{path} is damaged: its SHA-256 should be {row.sha256[:16]}…, is {found[:16]}…; {REPAIR}")
    return path
