"""What is compared: baselines and networks by name, loaded when their turn comes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..models.network import MatchingNetwork
from ..models.registry import REGISTRY, list_models, sketch
from ..models.weights import SHIPPED, load_model
from ..utils.files import PathLike
from .baselines import BASELINES, Matcher
from .benchmarks import Benchmark
from .runner import Evaluation, evaluate_all


@dataclass(frozen=True)
class Contestant:
    """A row of a table.

    Attributes:
        label: what it is called there.
        make: gives the matcher or network.
        options: of `evaluate`, such as numbers of iterations; for networks only.
        note: what results depend on, beside options and data.
        about: what a study varies, for its plot.
    """

    label: str
    make: Callable[[], Matcher | MatchingNetwork]
    options: Mapping[str, Any] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def run(self, benchmarks: Mapping[str, Benchmark], **options: Any) -> dict[str, Evaluation]:
        """`evaluate_all` with its own options."""
        note = {"matcher": self.label, **self.note, **options.pop("note", {})}
        return evaluate_all(self.make(), benchmarks, **self.options, **options, note=note)


def contestants(
    specifications: Sequence[str],
    *,
    weights: str = "default",
    device: str = "auto",
    iters_local: int | None = None,
    iters_global: int | None = None,
    min_size: int | None = None,
    max_size: int | None = None,
    align: bool = False,
) -> list[Contestant]:
    """Baselines and networks.

    Args:
        specifications: a name of `BASELINES` or `list_models()`, or `NAME:CHECKPOINT`.
        weights: of networks without a checkpoint of their own: `"default"` for those that ship, `"none"` for start
            values, a checkpoint, or a folder of checkpoints `NAME.safetensors`.
        device: see `load_model`.
        iters_local: see `MatchingNetwork.forward`.
        iters_global: see `MatchingNetwork.forward`; networks without a global layer keep to none.
        min_size: see `MatchingNetwork.forward`.
        max_size: see `MatchingNetwork.forward`.
        align: see `network_matcher`; other networks are used as they are. Labels say so.
    """
    found: dict[str, Contestant] = {}
    networks = [name for name in (text.partition(":")[0] for text in specifications) if name in REGISTRY]
    if iters_local is not None and not networks:
        raise ValueError("iters_local is an option of networks, and none is asked for")
    if iters_global is not None and not any(map(has_global_layer, networks)):
        raise ValueError("iters_global is an option of networks with a global layer, and none is asked for")
    for specification in specifications:
        name, _, checkpoint = specification.partition(":")
        if specification in BASELINES:
            made = Contestant(name, partial(BASELINES.__getitem__, name), note=_library())
        elif name in REGISTRY:
            label = f"{name} ({Path(checkpoint).stem})" if checkpoint else name
            options: dict[str, Any] = {"iters_local": iters_local, "min_size": min_size, "max_size": max_size}
            if iters_global is not None and has_global_layer(name):
                options["iters_global"] = iters_global
            if align and sketch(name).can_align:
                options["align"], label = True, f"{label}, aligned"
            path = find_weights(name, checkpoint or weights)
            note = {"weights": stamp(name, path), "device": device}
            made = Contestant(label, cache(partial(load_seeded, name, path, device)), options, note)
        else:
            known = ", ".join((*BASELINES, *list_models()))
            raise ValueError(f"no matcher is named {name!r}; there are {known}")
        if made.label in found:
            raise ValueError(f"{made.label} was asked for twice")
        found[made.label] = made
    return list(found.values())


def load_seeded(name: str, weights: str | None, device: str) -> MatchingNetwork:
    """`load_model` with the same start values each time, where there are no weights; the random state is kept."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return load_model(name, weights, device=device)


def find_weights(name: str, weights: PathLike) -> str | None:
    """`default`, `none` or a path → what `load_model` takes; a folder is searched for a checkpoint of that name."""
    if str(weights) in ("default", "none"):
        return None if str(weights) == "none" else "default"
    path = Path(weights)
    if path.is_dir():
        path = path / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"no such checkpoint: {path}")
    return str(path)


def has_global_layer(name: str) -> bool:
    """Whether a network has a global correlation layer."""
    return sketch(name).has_global_layer


def stamp(name: str, weights: str | None) -> Any:
    """Which checkpoint, and which state of it: what results of a network depend on."""
    path = SHIPPED / f"{name}.safetensors" if weights in ("default", None) else Path(str(weights))
    if weights is None or not path.is_file():
        return "start values"
    state = path.stat()
    return {"path": str(path.resolve()), "bytes": state.st_size, "modified": state.st_mtime_ns}


def _library() -> dict[str, str]:
    import cv2

    return {"opencv": cv2.__version__}
