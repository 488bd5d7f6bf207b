"""What a training run is made of: one frozen record, from defaults, a TOML file and the command line, in that order."""

import json
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..models.registry import REGISTRY, list_models, sketch
from ..utils.files import read_bytes, write_bytes_atomically

FILE = "config.toml"


@dataclass(frozen=True)
class TrainConfig:
    """Options of a run. Sizes are (height, width); `None` is "decide for me".

    Attributes:
        model: one of `gocor models`.
        output: folder of the run.
        device: `"auto"` is a GPU where there is one.
        init: checkpoint to start from, in place of start values.
        seed: of the start values and of the pairs.
        data: folders, zips or files of photos that pairs are made of.
        objects: images with transparency, or COCO annotations, of objects that move on top of the photos.
        object_images: photos that the COCO annotations are about.
        preset: how pairs are made; `"auto"` is `dynamic` with objects, `static` without.
        flow: data sets with optical flow in place of photos, each as NAME=FOLDER.
        size: of the images that the network is trained on.
        batch: pairs of a step, those of all processes together.
        steps: length of the run.
        time_limit: minutes of training, those before a resume included, after which the run ends.
        schedule_by: whether the schedule's progress is step/steps, or the larger of that and minutes/time_limit.
        loss: `"mean"`: mean end-point error of each level, fine levels weigh more; `"published"`: sums over pixels with
            the paper's weights.
        level_weights: in place of those of `loss`, coarse to fine. Levels after the last that is not zero are left out.
        robust_exponent: q of (e + ε)^q, which each pixel's error e counts by, one for all levels or for each; 1 is the
            error itself.
        robust_epsilon: ε of the same, in pixels.
        count_occluded: whether pixels that the query has inside but hidden count.
        lr: highest learning rate.
        schedule: `"one-cycle"` (linear rise, cosine fall), `"constant"` or `"multi-step"`.
        warmup: share of the run that the rate rises in.
        milestones: shares of the run at which a multi-step schedule multiplies the rate by `gamma`.
        gamma: see `milestones`.
        weight_decay: of weights with two dimensions or more, GOCor's parameters left out.
        betas: of AdamW.
        clip: largest norm of the gradient, 0 for no limit.
        ema: decay of the moving average of weights that is validated and exported, 0 for none.
        iters_local: iterations of local GOCor layers in training.
        iters_global: iterations of the global GOCor layer in training.
        precision: `"bf16"` (autocast; GOCor iterates in float32), `"float32"`, or `"auto"`: bf16 on a GPU.
        tf32: let float32 products on a GPU round their operands to TF32.
        graph: replay each step as one CUDA graph; by default on a GPU with one process.
        activation_checkpointing: compute the correlation layers twice to keep less of them in memory.
        channels_last: memory format of network and images; by default on a GPU.
        log_every: steps between records of the log.
        validate_every: steps between validations.
        validation_pairs: how many held-out pairs a validation takes.
        checkpoint_every: steps between checkpoints.
        checkpoint_minutes: minutes between checkpoints, where these are fewer.
        eval: data sets to evaluate on at each validation, each as NAME=FOLDER.
    """

    model: str
    output: str
    device: str = "auto"
    init: str | None = None
    seed: int = 0

    data: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    object_images: tuple[str, ...] = ()
    preset: str = "auto"
    flow: tuple[str, ...] = ()
    size: tuple[int, int] = (256, 256)
    batch: int = 16

    steps: int = 10_000
    time_limit: float | None = None
    schedule_by: Literal["steps", "time"] = "steps"

    loss: Literal["mean", "published"] = "mean"
    level_weights: tuple[float, ...] = ()
    robust_exponent: tuple[float, ...] = (1.0,)
    robust_epsilon: float = 0.01
    count_occluded: bool = True

    lr: float = 3e-4
    schedule: Literal["one-cycle", "constant", "multi-step"] = "one-cycle"
    warmup: float = 0.05
    milestones: tuple[float, ...] = (0.65, 0.75, 0.95)
    gamma: float = 0.5
    weight_decay: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 5.0
    ema: float = 0.999

    iters_local: int = 3
    iters_global: int = 3
    precision: Literal["auto", "bf16", "float32"] = "auto"
    tf32: bool = True
    graph: bool | None = None
    activation_checkpointing: bool = False
    channels_last: bool | None = None

    log_every: int = 50
    validate_every: int = 1000
    validation_pairs: int = 64
    checkpoint_every: int = 500
    checkpoint_minutes: float = 5.0
    eval: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.model not in REGISTRY:
            raise ValueError(f"no model is named {self.model!r}; there are {', '.join(list_models())}")
        if bool(self.data) == bool(self.flow):
            given = "both" if self.data else "neither"
            raise ValueError(f"pairs come from photos (data) or from data sets with flow (flow), got {given}")
        for name in ("batch", "steps", "log_every", "validate_every", "validation_pairs", "checkpoint_every"):
            _check(name, getattr(self, name), at_least=1)
        for name in ("seed", "iters_local", "iters_global", "weight_decay", "clip", "robust_epsilon"):
            _check(name, getattr(self, name), at_least=0)
        for name in ("lr", "checkpoint_minutes", "gamma"):
            _check(name, getattr(self, name), above=0)
        for exponent in self.robust_exponent:
            _check("robust_exponent", exponent, above=0)
        for name in ("warmup", "ema", *("milestones",) * bool(self.milestones)):
            values = getattr(self, name)
            for value in values if isinstance(values, tuple) else (values,):
                if not 0 <= value < 1:
                    raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
        for side in self.size:
            _check("size", side, at_least=16)
        for weight in self.level_weights:
            _check("level_weights", weight, at_least=0)
        if self.time_limit is not None:
            _check("time_limit", self.time_limit, above=0)
        elif self.schedule_by == "time":
            raise ValueError("schedule_by = 'time' needs a time_limit, in minutes")

    def to_toml(self) -> str:
        """All options as a TOML document; those that are `None` are left out."""
        return "".join(
            f"{field.name} = {_as_toml(value)}\n"
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None
        )

    def save(self, folder: Path) -> None:
        """Write `config.toml` into a folder."""
        write_bytes_atomically(folder / FILE, self.to_toml().encode())


def make_config(options: Mapping[str, Any], *, file: Path | None = None) -> TrainConfig:
    """The options of a run.

    Args:
        options: by name; they win over the file. Unknown ones are errors.
        file: TOML file of such options. What neither names has its default, some of which depend on the model.
    """
    values = (read_toml(file) if file is not None else {}) | _checked(options, "")
    model = values.setdefault("model", "basenet-gocor")
    values.setdefault("output", f"runs/{model}")
    defaults = sketch(model).training_defaults if model in REGISTRY else {}
    return TrainConfig(**(dict(defaults) | values))


def read_toml(file: Path) -> dict[str, Any]:
    """Options from a TOML file, their names and types checked."""
    try:
        return _checked(tomllib.loads(read_bytes(file).decode()), f"{file}: ")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a TOML file: {error}") from None


def parse_assignment(text: str) -> tuple[str, Any]:
    """`"key=value"` of a command line, the value as TOML or, failing that, as the text itself."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"an option is set as KEY=VALUE, got {text!r}")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _checked(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    hints = get_type_hints(TrainConfig)
    for key in options:
        if key not in hints:
            raise ValueError(f"{where}there is no option {key!r}; there are {', '.join(sorted(hints))}")
    return {key: _fit(f"{where}{key}", value, hints[key]) for key, value in options.items()}


def _fit(name: str, value: Any, hint: Any) -> Any:
    """A value as its type demands: lists become tuples, whole numbers floats where these are meant."""
    wanted = get_origin(hint)
    if wanted in (Union, types.UnionType):
        return None if value is None else _fit(name, value, get_args(hint)[0])
    if wanted is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(map(str, get_args(hint)))}, got {value!r}")
        return value
    if wanted is tuple:
        item, *rest = get_args(hint)
        if name.endswith("size") and isinstance(value, int):
            value = (value, value)
        values = [value] if not isinstance(value, (list, tuple)) else value
        if rest != [Ellipsis] and len(values) != 1 + len(rest):
            raise ValueError(f"{name} must have {1 + len(rest)} values, got {value!r}")
        return tuple(_fit(name, v, item) for v in values)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{name} must be of type {hint.__name__}, got {value!r}")
    return value


def _check(name: str, value: float, *, at_least: float | None = None, above: float | None = None) -> None:
    if at_least is not None and not value >= at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    if above is not None and not value > above:
        raise ValueError(f"{name} must be greater than {above}, got {value}")


def _as_toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_as_toml(v) for v in value)}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else repr(value)
