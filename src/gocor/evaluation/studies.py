"""The paper's studies: what is compared, and over what it is plotted."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from ..models.network import MatchingNetwork
from ..models.registry import create_model
from ..models.weights import UntrainedWarning, choose_device, load_weights
from ..modules.global_gocor import GlobalGOCor
from ..modules.gocor import GOCor
from ..modules.initializers import INITIALIZERS, SimpleInitializer, ZeroInitializer, build_initializer
from ..modules.objective import ReferenceObjective
from ..utils.timing import compare
from .baselines import network_matcher
from .benchmarks import Benchmark
from .contestants import Contestant, find_weights, has_global_layer, load_seeded, stamp
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

Sizes = Mapping[str, int | None]  # bounds of the size that networks work at, by option


def study(
    name: str,
    models: Sequence[str] = (),
    *,
    weights: str = "default",
    device: str = "auto",
    min_size: int | None = None,
    max_size: int | None = None,
) -> list[Contestant]:
    """The contestants of a study.

    Args:
        name: `"iterations"`: each network with other numbers of local, then of global iterations.
            `"ablation"`: BaseNet with plain correlations, and with more and more of GOCor (the paper's I to VI).
            `"initializers"`: the initial filters of the global module; `"eta"`: η of the robust function.
        models: networks; by default `glunet-gocor`, and of `"initializers"` the paper's, `basenet-global-rq`. The
            ablation has its own.
        weights: see `contestants`. In a folder, variants that were trained as such are looked for as
            `MODEL-INITIALIZER.safetensors` and `MODEL-eta-VALUE.safetensors`; those that are not there are made
            from the network's own weights, without training, and say so in their label.
        device: see `load_model`.
        min_size: see `MatchingNetwork.forward`.
        max_size: see `MatchingNetwork.forward`.
    """
    if name not in STUDIES:
        raise ValueError(f"no study is named {name!r}; there are {', '.join(STUDIES)}")
    sizes = {"min_size": min_size, "max_size": max_size}
    if name == "ablation":
        if models:
            raise ValueError("the ablation has its own models: leave them out")
        return [_plain(model, f"{text} ({model})", weights, device, sizes) for model, text in ABLATION.items()]
    chosen = list(models) or [INITIALIZER_MODEL if name == "initializers" else "glunet-gocor"]
    found: list[Contestant] = []
    for model in chosen:
        _check_gocor(model, need_global=name == "initializers")
        if name == "iterations":
            found += _iterations(model, weights, device, sizes)
        elif name == "eta":
            found += [_variant(model, f"eta-{eta:g}", _set_eta, eta, weights, device, sizes) for eta in ETAS]
        else:
            found += [
                _variant(model, initializer, _set_initializer, initializer, weights, device, sizes)
                for initializer in INITIALIZERS
            ]
    return found


def run_times(
    contestants: Sequence[Contestant], benchmarks: Mapping[str, Benchmark], *, repeats: int = 5
) -> dict[str, dict[str, float]]:
    """Median seconds of the first pair of each data set, by label and data set; networks take turns, after a warm-up.

    Times of an evaluation are no good for this: contestants run one after the other, and the machine may be busier
    with one than with the next.
    """
    times: dict[str, dict[str, float]] = {contestant.label: {} for contestant in contestants}
    device = torch.device("cpu")
    for name, benchmark in benchmarks.items():
        pair, calls = benchmark.dataset[0], {}
        for contestant in contestants:
            network = contestant.make()
            assert isinstance(network, MatchingNetwork)
            device = next(network.parameters()).device
            matcher = network_matcher(network, **contestant.options)
            calls[contestant.label] = partial(matcher, pair.reference, pair.query)
        for label, milliseconds in compare(calls, device, repeats).items():
            times[label][name] = milliseconds / 1e3
    return times


def draw_study(
    contestants: Sequence[Contestant],
    results: Mapping[str, Mapping[str, Evaluation]],
    times: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, bytes]:
    """Plots of a study by file name: metrics, and run times if given, over what it varies, a file a data set."""
    files = {}
    for name in dict.fromkeys(name for sets in results.values() for name in sets):
        lines: dict[str, tuple[list[float], list[dict[str, float]]]] = {}
        for contestant in contestants:
            if "value" not in contestant.about or name not in results.get(contestant.label, {}):
                continue
            evaluation = results[contestant.label][name]
            x, values = lines.setdefault(contestant.about["line"], ([], []))
            x.append(contestant.about["value"])
            values.append(evaluation.metrics | ({"seconds": times[contestant.label][name]} if times else {}))
        if lines:
            files[f"study-{name}.png"] = draw_metrics(lines, xlabel=contestants[0].about["axis"])
    return files


def _plain(model: str, label: str, weights: str, device: str, sizes: Sizes) -> Contestant:
    path = find_weights(model, weights)
    note = {"weights": stamp(model, path), "device": device}
    return Contestant(label, cache(partial(load_seeded, model, path, device)), dict(sizes), note)


def _iterations(model: str, weights: str, device: str, sizes: Sizes) -> list[Contestant]:
    base = _plain(model, model, weights, device, sizes)
    kinds = [("local", LOCAL_ITERS)] + ([("global", GLOBAL_ITERS)] if has_global_layer(model) else [])
    return [
        Contestant(
            f"{model}, {count} {kind}",
            base.make,
            {**base.options, f"iters_{kind}": count},
            base.note,
            {"line": f"{model}: {kind}", "axis": "iterations", "value": count},
        )
        for kind, counts in kinds
        for count in counts
    ]


def _variant(
    model: str,
    suffix: str,
    change: Callable[[MatchingNetwork, Any], None],
    value: Any,
    weights: str,
    device: str,
    sizes: Sizes,
) -> Contestant:
    special = Path(weights) / f"{model}-{suffix}.safetensors" if Path(weights).is_dir() else None
    trained = special is not None and special.is_file()
    path = str(special) if trained else find_weights(model, weights)
    own = value in (_own_initializer(model), _own_eta(model))  # the network as it is

    def make() -> MatchingNetwork:
        with warnings.catch_warnings():
            if trained:  # its weights come after the change
                warnings.simplefilter("ignore", UntrainedWarning)
            network = load_seeded(model, None if trained else path, device="cpu")
        if not own:
            change(network, value)
        if trained:
            network.name = f"{model}-{suffix}"
            load_weights(network, str(special))
        return network.to(choose_device(device))

    label = f"{model}, {suffix}" + ("" if trained or own else " (not retrained)")
    about = {"line": model, "axis": "η", "value": value} if isinstance(value, float) else {}
    note = {"weights": stamp(model, path), "device": device, "variant": suffix}
    return Contestant(label, cache(make), dict(sizes), note, about)


def _set_eta(network: MatchingNetwork, eta: float) -> None:
    for module in network.modules():
        if isinstance(module, GOCor) and isinstance(module.objective, ReferenceObjective):
            module.objective.eta = eta


def _set_initializer(network: MatchingNetwork, initializer: str) -> None:
    for module in network.modules():
        if isinstance(module, GlobalGOCor):
            channels = _channels(module)
            parameter = module.regularization
            module.initializer = build_initializer(initializer, channels, 1e-12).to(parameter)


def _own_eta(model: str) -> float | None:
    """η of a network's GOCor modules."""
    return next((layer.objective.eta for layer in _gocor_layers(model)), None)


def _own_initializer(model: str) -> str | None:
    """Initialiser of a network's global GOCor module, by its name."""
    layer = next((layer for layer in _gocor_layers(model) if isinstance(layer, GlobalGOCor)), None)
    if layer is None or isinstance(layer.initializer, ZeroInitializer):
        return None if layer is None else "zero"
    kind = "simple" if isinstance(layer.initializer, SimpleInitializer) else "context"
    return kind if layer.initializer.beta.numel() == 1 else f"flexible-{kind}"  # type: ignore[operator]


def _gocor_layers(model: str) -> list[GOCor]:
    with torch.device("meta"):
        return [module for module in create_model(model).modules() if isinstance(module, GOCor)]


def _channels(module: GlobalGOCor) -> int:
    beta = getattr(module.initializer, "beta", torch.empty(0))
    if beta.numel() < 2:
        raise ValueError("the network's own initialiser must be a flexible one: the others do not know the channels")
    return int(beta.numel())


def _check_gocor(model: str, *, need_global: bool) -> None:
    layers = _gocor_layers(model)
    if not any(isinstance(layer, GlobalGOCor) or not need_global for layer in layers):
        raise ValueError(f"{model} has no {'global ' if need_global else ''}GOCor layer to study")
