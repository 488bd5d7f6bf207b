"""Matchers with the labels that they have in tables: baselines and networks by name, loaded when they are needed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..matching.options import MatchOptions
from ..models.network import MatchingNetwork
from ..models.registry import REGISTRY, list_models, sketch
from ..models.weights import SHIPPED, load_model
from ..utils.errors import InputError
from ..utils.files import PathLike, file_stamp
from .baselines import BASELINES, Matcher
from .benchmarks import Benchmark
from .runner import Evaluation, evaluate_all


@dataclass(frozen=True)
class NamedMatcher:
    """A row of a table.

    Attributes:
        label: name in the table.
        load: returns the matcher or network.
        options: how a network matches; `None` for functions.
        note: what results depend on besides options and data: weights, device, library versions.
    """

    label: str
    load: Callable[[], Matcher | MatchingNetwork]
    options: MatchOptions | None = None
    note: Mapping[str, Any] = field(default_factory=dict)

    def keywords(self) -> dict[str, Any]:
        """The options, as `evaluate` and `network_matcher` take them."""
        return {} if self.options is None else self.options.as_dict()

    def evaluate(
        self, benchmarks: Mapping[str, Benchmark], *, note: Mapping[str, Any] | None = None, **options: Any
    ) -> dict[str, Evaluation]:
        """`evaluate_all` with the options and the note of this matcher."""
        note = {"matcher": self.label, **self.note, **(note or {})}
        return evaluate_all(self.load(), benchmarks, **self.keywords(), **options, note=note)


def find_matchers(
    specifications: Sequence[str],
    options: MatchOptions,
    *,
    weights: str = "default",
    device: str = "auto",
) -> list[NamedMatcher]:
    """Baselines and networks by name.

    Args:
        specifications: a name of `BASELINES` or `list_models()`, or `NAME:CHECKPOINT`.
        options: how networks match. Networks without a global layer ignore `iters_global`, and networks that cannot
            align images ignore `align`. Labels of aligned networks say so.
        weights: weights of networks without a checkpoint of their own: `"default"` for those that ship, `"none"` for
            initial values, a checkpoint, or a folder of checkpoints `NAME.safetensors`.
        device: see `load_model`.
    """
    networks = [name for name in (text.partition(":")[0] for text in specifications) if name in REGISTRY]
    if options.iters_local is not None and not networks:
        raise InputError("iters_local is an option of networks, and no network is given")
    if options.iters_global is not None and not any(sketch(name).has_global_layer for name in networks):
        raise InputError("iters_global is an option of networks with a global layer, and no such network is given")
    found: dict[str, NamedMatcher] = {}
    for specification in specifications:
        name, _, checkpoint = specification.partition(":")
        if specification in BASELINES:
            matcher = NamedMatcher(name, partial(BASELINES.__getitem__, name), note=_library_version())
        elif name in REGISTRY:
            matcher = load_later(name, find_weights(name, checkpoint or weights), device, options)
            if checkpoint:
                matcher = replace(matcher, label=f"{name} ({Path(checkpoint).stem})")
            if matcher.options is not None and matcher.options.align:
                matcher = replace(matcher, label=f"{matcher.label}, aligned")
        else:
            known = ", ".join((*BASELINES, *list_models()))
            raise InputError(f"no matcher is named {name!r}; there are {known}")
        if matcher.label in found:
            raise InputError(f"{matcher.label} is given twice")
        found[matcher.label] = matcher
    return list(found.values())


def load_later(name: str, weights: str | None, device: str, options: MatchOptions) -> NamedMatcher:
    """A network by name, loaded once, when it is first needed; options that it does not have are dropped.

    The other arguments are those of `load_model`.
    """
    facts = sketch(name)
    options = replace(
        options,
        iters_global=options.iters_global if facts.has_global_layer else None,
        align=options.align if facts.can_align else False,
    )
    options.resolve(facts)  # what does not fit is an error before anything is loaded
    note = {"weights": _weights_stamp(name, weights), "device": device}
    return NamedMatcher(name, cache(partial(load_seeded, name, weights, device, fast=options.fast)), options, note)


def load_seeded(name: str, weights: str | None, device: str, **options: Any) -> MatchingNetwork:
    """`load_model` with the same initial values each time; the state of the random generator is kept."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return load_model(name, weights, device=device, **options)


def find_weights(name: str, weights: PathLike) -> str | None:
    """`default`, `none` or a path → the argument of `load_model`; a folder is searched for `NAME.safetensors`."""
    if str(weights) in ("default", "none"):
        return None if str(weights) == "none" else "default"
    path = Path(weights)
    if path.is_dir():
        path = path / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"no such checkpoint: {path}")
    return str(path)


def _weights_stamp(name: str, weights: str | None) -> Any:
    """What identifies the weights of a network that results depend on."""
    path = SHIPPED / f"{name}.safetensors" if weights == "default" else weights
    return (None if path is None else file_stamp(path)) or "start values"


def _library_version() -> dict[str, str]:
    import cv2

    return {"opencv": cv2.__version__}
