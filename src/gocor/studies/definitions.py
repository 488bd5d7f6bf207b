"""What each study compares: variants of networks, the training pairs, and the paper's table beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..modules.initializers import INITIALIZERS


@dataclass(frozen=True)
class Variant:
    """A row of a study.

    Attributes:
        label: name in tables; the paper's table has the same label where it has the row.
        model: name of the network.
        run: name of the training run, which rows may share.
        network: options in which the network differs from the registered one.
        preset: the paper's training pairs, `"static"` or `"dynamic"`.
        match: options of matching, such as `iters_local`.
        position: line, and x in the study's plot; without one, variants are drawn side by side.
    """

    label: str
    model: str
    run: str
    network: Mapping[str, Any] = field(default_factory=dict)
    preset: str = "static"
    match: Mapping[str, Any] = field(default_factory=dict)
    position: tuple[str, float] | None = None


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        name: on the command line.
        title: what it is about.
        variants: its rows.
        axis: label of the x axis of its plot.
        table: name of the paper's table, see `paper`; `None` if the paper only has a plot.
        timed: also measure the run time of every row.
    """

    name: str
    title: str
    variants: tuple[Variant, ...]
    axis: str = ""
    table: str | None = None
    timed: bool = False


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
LOCAL_ITERS = (0, 1, 2, 3, 5, 7, 9)
GLOBAL_ITERS = (0, 1, 2, 3, 4, 5)
ETAS = (0.0, 0.05, 0.1, 0.2)
PAPER_LOCAL = {"iters_local": 7}  # the paper's number of local iterations in evaluation


def _ablation() -> tuple[Variant, ...]:
    return tuple(Variant(label, model, model, preset="dynamic") for label, model in ABLATION.items())


def _static_ablation() -> tuple[Variant, ...]:
    rows = [Variant(label, model, model) for label, model in STATIC_ABLATION.items()]
    both = {"global.bidirectional": True}
    rows.insert(4, Variant("IV, fusion of both directions", "basenet-global-rq", "basenet-global-rq-both", both))
    return tuple(rows)


def _initializers() -> tuple[Variant, ...]:
    model = "basenet-global-rq"
    return tuple(Variant(kind, model, f"{model}-{kind}", {"global.initializer": kind}) for kind in INITIALIZERS)


def _eta() -> tuple[Variant, ...]:
    rows = [Variant("GLU-Net", "glunet", "glunet", preset="dynamic")]
    for eta in ETAS:
        options, place = {"global.eta": eta, "local.eta": eta}, ("GLU-Net-GOCor", eta)
        name = f"glunet-gocor-eta-{eta:g}"
        rows.append(Variant(f"η = {eta:g}", "glunet-gocor", name, options, "dynamic", PAPER_LOCAL, place))
    return tuple(rows)


def _training_data() -> tuple[Variant, ...]:
    rows = []
    for model, title, match in (("glunet", "GLU-Net", {}), ("glunet-gocor", "GLU-Net-GOCor", PAPER_LOCAL)):
        for preset in ("static", "dynamic"):
            label = f"{title} (*{preset.capitalize()}*)"
            rows.append(Variant(label, model, f"{model}-{preset}", {}, preset, match))
    return tuple(rows)


def _training_iterations() -> tuple[Variant, ...]:
    rows = [Variant("BaseNet", "basenet", "basenet")]
    for count in TRAINING_ITERS:
        options, name = {"global.iters": count, "local.iters": count}, f"basenet-gocor-{count}-iterations"
        label, place = f"{count} iteration{'s' * (count != 1)}", ("BaseNet-GOCor", float(count))
        rows.append(Variant(label, "basenet-gocor", name, options, position=place))
    return tuple(rows)


def _iterations() -> tuple[Variant, ...]:
    rows = []
    for kind, counts in (("local", LOCAL_ITERS), ("global", GLOBAL_ITERS)):
        for count in counts:
            match, place = {f"iters_{kind}": count}, (f"{kind} iterations", float(count))
            label = f"{count} {kind}"
            rows.append(Variant(label, "glunet-gocor", "glunet-gocor", {}, "dynamic", match, place))
    return tuple(rows)


def _run_time() -> tuple[Variant, ...]:
    rows = []
    for model, title in (("pwcnet", "PWC-Net"), ("glunet", "GLU-Net")):
        rows.append(Variant(title, model, "", preset=""))
        for count in (3, 7):
            label = f"{title}-GOCor, {count} local iterations"
            rows.append(Variant(label, f"{model}-gocor", "", preset="", match={"iters_local": count}))
    return tuple(rows)


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
    )
}
