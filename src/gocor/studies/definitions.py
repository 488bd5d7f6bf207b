"""What each study compares: variants of networks, the training pairs, and the paper's table beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..modules.initializers import INITIALIZERS
from ..modules.options import ABSOLUTE_START, RELATIVE_START
from ..utils.errors import InputError


@dataclass(frozen=True)
class Variant:
    """A row of a study.

    Attributes:
        label: name in tables; the paper's table has the same label where it has the row.
        model: name of the network.
        network: options in which the network differs from the registered one. Options that are equal are left out, so
            that rows of all studies that need the same training run share it.
        preset: the paper's training pairs, `"static"` or `"dynamic"`; without one, the row needs no training.
        match: options of matching, such as `iters_local`.
        position: line, and x in the study's plot; without one, variants are drawn side by side.
    """

    label: str
    model: str
    network: Mapping[str, Any] = field(default_factory=dict)
    preset: str = "static"
    match: Mapping[str, Any] = field(default_factory=dict)
    position: tuple[str, float] | None = None

    @property
    def trained(self) -> bool:
        """Whether the row needs a training run."""
        return bool(self.preset)


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        name: name on the command line.
        title: title in tables.
        variants: rows of the study.
        axis: label of the x axis of its plot.
        table: name of the paper's table, see `paper`; `None` if the paper only has a plot.
        timed: also measure the run time of every row.
        learnt: also show the learnt λ and v⁺(0) of every row.
        models: networks that can stand in place of the study's own, which is the first.
    """

    name: str
    title: str
    variants: tuple[Variant, ...]
    axis: str = ""
    table: str | None = None
    timed: bool = False
    learnt: bool = False
    models: tuple[str, ...] = ()

    def with_model(self, model: str) -> "Study":
        """The study with another network in every row."""
        if model not in self.models:
            known = f"there are {', '.join(self.models)}" if self.models else "its networks are fixed"
            raise InputError(f"{self.name} cannot study {model!r}; {known}")
        return replace(self, variants=tuple(replace(variant, model=model) for variant in self.variants))


ABLATION = {
    "I plain": "basenet",
    "II NC-Net": "basenet-nc",
    "III global, linear regression": "basenet-global-linear",
    "IV global, L_r": "basenet-global-r",
    "V global, L_r + L_q": "basenet-global-rq",
    "VI V and local, L_r": "basenet-gocor",
    "VI V and local, L_r + L_q": "basenet-gocor-lq",
}
STATIC_ABLATION = {
    "I plain": "basenet",
    "II NC-Net": "basenet-nc",
    "III global, L_r": "basenet-global-r",
    "IV global, L_r + L_q": "basenet-global-rq",
    "V IV and local, L_r": "basenet-gocor",
    "VI IV and local, L_r + L_q": "basenet-gocor-lq",
}
TRAINING_ITERS = (0, 1, 3, 5)
ITERS = 3  # iterations of the registered networks
INITIALIZER = "flexible-context"  # initialiser of their global layers
LOCAL_ITERS = (0, 1, 2, 3, 5, 7, 9)
GLOBAL_ITERS = (0, 1, 2, 3, 4, 5)
ETAS = (0.0, 0.05, 0.1, 0.2)
ABSOLUTE_STARTS = (0.1, 1.0)
STRONG_STARTS = {"global": 0.25, "local": 10.0}  # about ρ = 0.25 for features of norm 1 and of norm 40
RELATIVE_STARTS = (0.05,)
PAPER_LOCAL = {"iters_local": 7}  # the paper's number of local iterations in evaluation


def _ablation() -> tuple[Variant, ...]:
    return tuple(Variant(label, model, preset="dynamic") for label, model in ABLATION.items())


def _static_ablation() -> tuple[Variant, ...]:
    rows = [Variant(label, model) for label, model in STATIC_ABLATION.items()]
    rows.insert(4, Variant("IV, fusion of both directions", "basenet-global-rq", {"global.bidirectional": True}))
    return tuple(rows)


def _initializers() -> tuple[Variant, ...]:
    options = {kind: {"global.initializer": kind} if kind != INITIALIZER else {} for kind in INITIALIZERS}
    return tuple(Variant(kind, "basenet-global-rq", options[kind]) for kind in INITIALIZERS)


def _eta() -> tuple[Variant, ...]:
    rows = [Variant("GLU-Net", "glunet", preset="dynamic")]
    for eta in ETAS:
        options, place = _both("eta", eta) if eta else {}, ("GLU-Net-GOCor", eta)
        rows.append(Variant(f"η = {eta:g}", "glunet-gocor", options, "dynamic", PAPER_LOCAL, place))
    return tuple(rows)


def _training_data() -> tuple[Variant, ...]:
    rows = []
    for model, title, match in (("glunet", "GLU-Net", {}), ("glunet-gocor", "GLU-Net-GOCor", PAPER_LOCAL)):
        for preset in ("static", "dynamic"):
            label = f"{title} (*{preset.capitalize()}*)"
            rows.append(Variant(label, model, {}, preset, match))
    return tuple(rows)


def _training_iterations() -> tuple[Variant, ...]:
    rows = [Variant("BaseNet", "basenet")]
    for count in TRAINING_ITERS:
        options = _both("iters", count) if count != ITERS else {}
        label, place = f"{count} iteration{'s' * (count != 1)}", ("BaseNet-GOCor", float(count))
        rows.append(Variant(label, "basenet-gocor", options, position=place))
    return tuple(rows)


def _iterations() -> tuple[Variant, ...]:
    rows = []
    for kind, counts in (("local", LOCAL_ITERS), ("global", GLOBAL_ITERS)):
        for count in counts:
            match, place = {f"iters_{kind}": count}, (f"{kind} iterations", float(count))
            label = f"{count} {kind}"
            rows.append(Variant(label, "glunet-gocor", {}, "dynamic", match, place))
    return tuple(rows)


def _run_time() -> tuple[Variant, ...]:
    rows = []
    for model, title in (("pwcnet", "PWC-Net"), ("glunet", "GLU-Net")):
        rows.append(Variant(title, model, preset=""))
        for count in (3, 7):
            label = f"{title}-GOCor, {count} local iterations"
            rows.append(Variant(label, f"{model}-gocor", preset="", match={"iters_local": count}))
    return tuple(rows)


def _regularizer() -> tuple[Variant, ...]:
    options: dict[str, dict[str, Any]] = {f"absolute, λ from {ABSOLUTE_START:g}": {}}
    for start in ABSOLUTE_STARTS:
        options[f"absolute, λ from {start:g}"] = _both("regularization", start)
    strong = {f"{layer}.regularization": start for layer, start in STRONG_STARTS.items()}
    options["absolute, λ from {global:g} (global), {local:g} (local)".format(**STRONG_STARTS)] = strong
    for start in (RELATIVE_START, *RELATIVE_STARTS):
        own = _both("regularization", start) if start != RELATIVE_START else {}
        options[f"relative, ρ from {start:g}"] = _both("regularizer", "relative") | own
    return tuple(Variant(label, "basenet-gocor", network) for label, network in options.items())


def _both(option: str, value: Any) -> dict[str, Any]:
    """An option of the global and of the local layer."""
    return {f"{layer}.{option}": value for layer in ("global", "local")}


STUDIES = {
    study.name: study
    for study in (
        Study("ablation", "Parts of GOCor in BaseNet", _ablation(), table="ablation"),
        Study("ablation-static", "Parts of GOCor in BaseNet", _static_ablation(), table="ablation-static"),
        Study("initializers", "Initial filters of the global module", _initializers(), table="initializers"),
        Study("eta", "η of the robust function", _eta(), axis="η", table="eta"),
        Study("training-data", "Static and dynamic training pairs", _training_data(), table="training-data"),
        Study(
            "training-iterations",
            "Iterations in training and evaluation",
            _training_iterations(),
            axis="iterations",
            table="training-iterations",
            timed=True,
        ),
        Study("iterations", "Iterations in evaluation", _iterations(), axis="iterations", timed=True),
        Study("run-time", "Run time", _run_time(), table="run-time", timed=True),
        Study("regularizer", "Regulariser", _regularizer(), learnt=True, models=("basenet-gocor", "glunet-gocor")),
    )
}
