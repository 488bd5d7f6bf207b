"""The paper's studies: the matchers that each compares, their run times, and its plots."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from ..matching.options import MatchOptions
from ..models.network import MatchingNetwork
from ..models.registry import sketch
from ..models.weights import UntrainedWarning, choose_device, load_weights
from ..modules.global_gocor import GlobalGOCor
from ..modules.gocor import GOCor
from ..modules.initializers import INITIALIZERS, SimpleInitializer, ZeroInitializer, build_initializer
from ..modules.objective import ReferenceObjective
from ..utils.errors import InputError
from ..utils.timing import compare
from .baselines import network_matcher
from .benchmarks import Benchmark
from .named_matchers import (
    NamedMatcher,
    PlotPosition,
    find_weights,
    has_global_layer,
    load_later,
    load_seeded,
)
from .plots import draw_metrics
from .runner import Evaluation

STUDIES = ("iterations", "ablation", "initializers", "eta")
LOCAL_ITERS = (0, 1, 2, 3, 5, 7, 9)
GLOBAL_ITERS = (0, 1, 2, 3, 4, 5)
ETAS = (0.0, 0.05, 0.1, 0.2)
ABLATION = {
    "basenet": "I plain",
    "basenet-nc": "II consensus",
    "basenet-global-linear": "III global, linear regression",
    "basenet-global-r": "IV global, reference term",
    "basenet-global-rq": "V global, reference and query term",
    "basenet-gocor": "VI V and local",
    "basenet-gocor-lq": "VI′ query term in the local module too",
}
INITIALIZER_MODEL = "basenet-global-rq"

NETWORK_ALONE = MatchOptions(align=False)


def study(
    name: str,
    models: Sequence[str] = (),
    options: MatchOptions = NETWORK_ALONE,
    *,
    weights: str = "default",
    device: str = "auto",
) -> list[NamedMatcher]:
    """The matchers that a study compares.

    Args:
        name: `"iterations"`: each network with several numbers of local, then of global iterations.
            `"ablation"`: BaseNet with plain correlations, and with increasing parts of GOCor (the paper's I to VI).
            `"initializers"`: the initial filters of the global module; `"eta"`: η of the robust function.
        models: names of networks; by default `glunet-gocor`, and `basenet-global-rq` for `"initializers"`, as in the
            paper. The ablation has its own.
        options: how networks match.
        weights: see `find_matchers`. In a folder, variants that were trained as such are expected as
            `MODEL-INITIALIZER.safetensors` and `MODEL-eta-VALUE.safetensors`. Variants without a file use the
            network's own weights, and their label says that they were not retrained.
        device: see `load_model`.
    """
    if name not in STUDIES:
        raise InputError(f"no study is named {name!r}; there are {', '.join(STUDIES)}")
    if name == "ablation":
        if models:
            raise InputError("the ablation has its own models: leave them out")
        found = [load_later(model, find_weights(model, weights), device, options) for model in ABLATION]
        return [replace(matcher, label=f"{ABLATION[matcher.label]} ({matcher.label})") for matcher in found]
    chosen = list(models) or [INITIALIZER_MODEL if name == "initializers" else "glunet-gocor"]
    rows: list[NamedMatcher] = []
    for model in chosen:
        _check_gocor(model, need_global=name == "initializers")
        if name == "iterations":
            rows += _iterations(load_later(model, find_weights(model, weights), device, options))
            continue
        change, values = (_set_eta, ETAS) if name == "eta" else (_set_initializer, INITIALIZERS)
        rows += [_variant(model, change, value, weights, device, options) for value in values]
    return rows


def run_times(
    matchers: Sequence[NamedMatcher], benchmarks: Mapping[str, Benchmark], *, repeats: int = 5
) -> dict[str, dict[str, float]]:
    """Median seconds of the first pair of each data set, by label and data set.

    Networks take turns after a warm-up, so that other load on the machine affects all of them alike. That is why the
    times of the evaluation itself are not used.
    """
    times: dict[str, dict[str, float]] = {matcher.label: {} for matcher in matchers}
    device = torch.device("cpu")
    for name, benchmark in benchmarks.items():
        pair, calls = benchmark.dataset[0], {}
        for matcher in matchers:
            network = matcher.load()
            assert isinstance(network, MatchingNetwork)
            device = next(network.parameters()).device
            match = network_matcher(network, **matcher.keywords())
            calls[matcher.label] = partial(match, pair.reference, pair.query)
        for label, milliseconds in compare(calls, device, repeats).items():
            times[label][name] = milliseconds / 1e3
    return times


def draw_study(
    matchers: Sequence[NamedMatcher],
    results: Mapping[str, Mapping[str, Evaluation]],
    times: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, bytes]:
    """Plots of a study by file name, one a data set: metrics, and run times if given, over the varied quantity."""
    files = {}
    for name in dict.fromkeys(name for sets in results.values() for name in sets):
        lines: dict[str, tuple[list[float], list[dict[str, float]]]] = {}
        axis = ""
        for matcher in matchers:
            if matcher.position is None or name not in results.get(matcher.label, {}):
                continue
            line, axis, at = matcher.position
            x, values = lines.setdefault(line, ([], []))
            x.append(at)
            seconds = {"seconds": times[matcher.label][name]} if times else {}
            values.append(results[matcher.label][name].metrics | seconds)
        if lines:
            files[f"study-{name}.png"] = draw_metrics(lines, xlabel=axis)
    return files


def _iterations(base: NamedMatcher) -> list[NamedMatcher]:
    """A network with several numbers of iterations."""
    model = base.label
    kinds = [("local", LOCAL_ITERS)] + ([("global", GLOBAL_ITERS)] if has_global_layer(model) else [])
    return [
        replace(
            base,
            label=f"{model}, {count} {kind}",
            options=MatchOptions(**base.keywords() | {f"iters_{kind}": count}),
            position=PlotPosition(f"{model}: {kind}", "iterations", count),
        )
        for kind, counts in kinds
        for count in counts
    ]


def _variant(
    model: str,
    change: Callable[[MatchingNetwork, Any], None],
    value: str | float,
    weights: str,
    device: str,
    options: MatchOptions,
) -> NamedMatcher:
    """A network with a part changed, and with weights that were trained that way if there are any."""
    suffix = value if isinstance(value, str) else f"eta-{value:g}"
    file = Path(weights) / f"{model}-{suffix}.safetensors"
    trained = Path(weights).is_dir() and file.is_file()
    path = str(file) if trained else find_weights(model, weights)
    unchanged = value in (_own_initializer(model), _own_eta(model))
    base = load_later(model, path, device, options)

    def load() -> MatchingNetwork:
        with warnings.catch_warnings():
            if trained:  # The weights are loaded after the change.
                warnings.simplefilter("ignore", UntrainedWarning)
            network = load_seeded(model, None if trained else path, device="cpu")
        if not unchanged:
            change(network, value)
        if trained:
            network.name = f"{model}-{suffix}"
            load_weights(network, file)
        return network.to(choose_device(device))

    return replace(
        base,
        label=f"{model}, {suffix}" + ("" if trained or unchanged else " (not retrained)"),
        load=cache(load),
        note={**base.note, "variant": suffix},
        position=PlotPosition(model, "η", value) if isinstance(value, float) else None,
    )


def _set_eta(network: MatchingNetwork, eta: float) -> None:
    for module in network.modules():
        if isinstance(module, GOCor) and isinstance(module.objective, ReferenceObjective):
            module.objective.eta = eta


def _set_initializer(network: MatchingNetwork, kind: str) -> None:
    for module in network.modules():
        if isinstance(module, GlobalGOCor):
            channels = _channels(module)
            parameter = module.regularization
            module.initializer = build_initializer(kind, channels, 1e-12).to(parameter)


def _own_eta(model: str) -> float | None:
    """η of a network's GOCor modules."""
    return next((layer.objective.eta for layer in _gocor_layers(model)), None)


def _own_initializer(model: str) -> str | None:
    """Name of the initialiser of a network's global GOCor module."""
    layer = next((layer for layer in _gocor_layers(model) if isinstance(layer, GlobalGOCor)), None)
    if layer is None or isinstance(layer.initializer, ZeroInitializer):
        return None if layer is None else "zero"
    kind = "simple" if isinstance(layer.initializer, SimpleInitializer) else "context"
    return kind if layer.initializer.beta.numel() == 1 else f"flexible-{kind}"  # type: ignore[operator]


def _gocor_layers(model: str) -> list[GOCor]:
    return [module for module in sketch(model).modules() if isinstance(module, GOCor)]


def _channels(module: GlobalGOCor) -> int:
    beta = getattr(module.initializer, "beta", torch.empty(0))
    if beta.numel() < 2:
        raise InputError("the network's own initialiser must be a flexible one, which has one value a channel")
    return int(beta.numel())


def _check_gocor(model: str, *, need_global: bool) -> None:
    layers = _gocor_layers(model)
    if not any(isinstance(layer, GlobalGOCor) or not need_global for layer in layers):
        raise InputError(f"{model} has no {'global ' if need_global else ''}GOCor layer to study")
