"""Options of a training run: defaults, overridden by a TOML file, overridden by the command line."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from ..models.registry import REGISTRY, sketch, unknown_model
from ..models.weights import choose_device
from ..utils.documents import parse_toml
from ..utils.errors import InputError
from ..utils.files import read_bytes, write_bytes_atomically
from ..utils.options import convert, flatten, nearest, nest, shown
from ..utils.toml import to_toml

FILE = "config.toml"
COMMAND = "# command: "  # beginning of a line of that file, followed by a command line as a JSON string
CPU_BATCH = 4  # largest default of `batch` on a CPU, where a step takes seconds for each pair

# Bounds of numeric options. They hold for every value of an option that has several.
MINIMUM = {
    **dict.fromkeys(("batch", "steps", "log_every", "validate_every", "validation_pairs", "checkpoint_every"), 1),
    **dict.fromkeys(("seed", "iters_local", "iters_global", "weight_decay", "clip", "robust_epsilon"), 0),
    "level_weights": 0,
    "size": 16,
}
POSITIVE = ("lr", "checkpoint_minutes", "gamma", "robust_exponent", "time_limit")
FRACTIONS = ("warmup", "ema", "milestones", "betas")  # at least 0 and below 1


@dataclass(frozen=True)
class TrainConfig:
    """Options of a training run.

    Sizes are (height, width) in pixels. Defaults of `size`, `batch`, `steps` and `lr` depend on the network.

    Attributes:
        model: Name of the network, see `gocor models`.
        network: Options in which the network differs from the registered one, by dotted name: `global.NAME` and
            `local.NAME` are those of its correlation layers (`gocor.modules.options.GOCorOptions`, and `radius`).
            They are stored with the weights.
        output: Folder that the run writes to.
        device: A torch device such as `"cpu"` or `"cuda"`. `"auto"` is a GPU if there is one, otherwise the CPU.
        init: Checkpoint to start from: a `.safetensors` file, a published checkpoint or the `last.pt` of another run.
            It holds weights of the same network, or of the same one without GOCor, whose correlation layers then start
            anew. `"default"` is the weights that ship. `None` starts from the network's start values.
        seed: Random seed of the start values and of the training pairs.

        data: Photos that synthetic pairs are made from: folders, zip files or single images.
        objects: Cut-outs that move in front of the photos: images with transparency, or COCO annotation files.
        object_images: Folders or zip files of the photos that COCO annotation files refer to.
        preset: How synthetic pairs are made, for example `"static"`, `"dynamic"` or `"flow"`. `"auto"` is `"dynamic"`
            if `objects` are given and `"static"` otherwise; `"dynamic+flow"` takes half of each batch from either.
            `gocor data preview` shows what a preset makes.
        flow: Data sets with ground-truth flow to train on in place of photos, each as `NAME=FOLDER` or with options of
            its reader as `NAME:OPTION=VALUE,…=FOLDER`, for example `sintel:pass=final=FOLDER`. The same data set may
            come several times. `share=NUMBER` is an option too: the part of the pairs that it gives.
        flow_root: Folder that contains the data sets of entries of `flow` without a folder.
        size: Size of the training images. A single number stands for a square.
        batch: Pairs per step, over all processes together. The network's own default is for a GPU; on a CPU the default
            is 4 at most.

        steps: Number of optimiser steps.
        time_limit: Minutes of training after which the run ends even if steps are left. Time before a resume counts.
            `None` sets no limit.
        schedule_by: What the learning rate follows. `"steps"` is the fraction of the steps that were taken; `"time"` is
            the larger of that fraction and of the fraction of `time_limit` that has passed.

        loss: `"mean"` is the mean end-point error of each level, weighted by the network's own weights. `"published"`
            is the loss of the paper: sums over pixels, weighted 0.32, 0.08, 0.02, 0.01, 0.005 from coarse to fine.
        level_weights: Loss weights of the levels, coarse to fine, in place of those of `loss`. Levels after the last
            non-zero weight are not computed.
        robust_exponent: Exponent q of the robust penalty (e + ε)^q of the end-point error e, a single number or one per
            level. 1 is the error e itself.
        robust_epsilon: The ε of the robust penalty, in the pixels that the level's flow is in.
        count_occluded: Include occluded pixels in the loss. Pixels of unknown flow never count.

        lr: Peak learning rate.
        schedule: `"one-cycle"` (cosine decay to a thousandth of the peak), `"multi-step"` or `"constant"`, each after a
            linear warm-up.
        warmup: Fraction of the run that the learning rate rises in, from a 25th of its peak.
        milestones: Fractions of the run at which the multi-step schedule multiplies the learning rate by `gamma`.
        gamma: Factor of the multi-step schedule.
        weight_decay: Weight decay of AdamW. Biases, batch normalisation and the parameters of GOCor do not decay.
        betas: Decay rates of AdamW's running averages of the gradient and of its square.
        clip: Largest norm of the gradient, longer gradients are scaled down to it; 0 disables clipping.
        ema: Decay of the exponential moving average (EMA) of the weights, which is what is validated and exported; 0
            disables averaging.

        iters_local: Iterations of local GOCor layers in training. `None` is the layers' own (`network.local.iters`).
        iters_global: Iterations of the global GOCor layer in training, likewise.
        precision: `"bf16"` is bfloat16 autocast, in which flows and GOCor's iterations stay in float32; `"float32"` is
            full precision; `"auto"` is bf16 on a GPU and float32 on a CPU.
        tf32: Allow TF32 tensor cores for float32 matrix products on a GPU.
        graph: Record the training step as a CUDA graph and replay it. `None` does so on a GPU with a single process and
            falls back to eager steps if recording fails; `True` makes such a failure an error.
        compile: Compile the network and its loss by `torch.compile`, which takes about a minute at the start.
        activation_checkpointing: Recompute the correlation layers in the backward pass to save memory.
        channels_last: Memory format of the network and the images. `None` is channels last on a GPU.

        log_every: Steps between two records of the training log.
        validate_every: Steps between two validations.
        validation_pairs: Number of held-out pairs that a validation uses.
        checkpoint_every: Steps between two checkpoints.
        checkpoint_minutes: Minutes after which a checkpoint is written at the latest.
        eval: Data sets to evaluate on after each validation, each as `NAME=FOLDER`, see `flow`.
    """

    model: str
    output: str
    network: dict[str, Any] = field(default_factory=dict)
    device: str = "auto"
    init: str | None = None
    seed: int = 0

    data: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    object_images: tuple[str, ...] = ()
    preset: str = "auto"
    flow: tuple[str, ...] = ()
    flow_root: str | None = None
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

    iters_local: int | None = None
    iters_global: int | None = None
    precision: Literal["auto", "bf16", "float32"] = "auto"
    tf32: bool = True
    graph: bool | None = None
    compile: bool = False
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
            raise unknown_model(self.model)
        sketch(self.model, self.network)  # checks the options of the network
        if bool(self.data) == bool(self.flow):
            given = "both" if self.data else "neither"
            raise InputError(f"give photos to train on (--data) or data sets with optical flow (--flow), got {given}")
        if self.schedule_by == "time" and self.time_limit is None:
            raise InputError("schedule_by = 'time' needs a time_limit, in minutes")
        for name, option in vars(self).items():
            for value in option if isinstance(option, tuple) else (option,):
                _check_number(name, value)

    def to_toml(self) -> str:
        """All options as a TOML document; those that are `None` are left out."""
        return to_toml(asdict(self) | {"network": nest(self.network) or None})

    def save(self, folder: Path, commands: Sequence[str] = ()) -> None:
        """Write `config.toml` into a folder, with the commands that made the run in comments at its top."""
        comments = "".join(f"{COMMAND}{json.dumps(command)}\n" for command in commands)
        write_bytes_atomically(folder / FILE, (comments + self.to_toml()).encode())


def make_config(options: Mapping[str, Any], *, file: Path | None = None) -> TrainConfig:
    """The options of a run. Unknown options are errors.

    Args:
        options: options by name; they override those of the file.
        file: TOML file of options. Options that are given nowhere have the network's or the general defaults.
    """
    saved = read_toml(file) if file is not None else {}
    values = merge_options(saved, typed_options(options))
    model = values.setdefault("model", "basenet-gocor")
    values.setdefault("output", f"runs/{model}")
    defaults = sketch(model).training_defaults if model in REGISTRY else {}
    if choose_device(values.get("device", "auto")).type == "cpu":
        defaults = {**defaults, "batch": min(defaults.get("batch", TrainConfig.batch), CPU_BATCH)}
    return TrainConfig(**(dict(defaults) | values))


def read_commands(folder: Path) -> list[str]:
    """The commands that made a run so far, as `TrainConfig.save` has written them."""
    file = folder / FILE
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line.removeprefix(COMMAND)) for line in lines if line.startswith(COMMAND)]


def merge_options(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Options of both, where the second wins; options of the network are merged one by one."""
    network = flatten(first.get("network", {})) | flatten(second.get("network", {}))
    return {**first, **second, **({"network": network} if network else {})}


def read_toml(file: Path) -> dict[str, Any]:
    """Options of a TOML file, with the types of `TrainConfig`."""
    data = read_bytes(file)
    try:
        options = parse_toml(data)
    except InputError as error:
        raise InputError(f"{file} is {error}") from None
    return typed_options(options, where=f"{file}: ")


def parse_assignment(text: str) -> tuple[str, Any]:
    """Name and value of `"name=value"`. The value is TOML, or a string if it is not valid TOML."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"an option is set as KEY=VALUE, got {text!r}")
    try:
        return key.strip(), parse_toml(f"value = {value}")["value"]
    except InputError:
        return key.strip(), value


def typed_options(options: Mapping[str, Any], *, where: str = "") -> dict[str, Any]:
    """Options with the types of `TrainConfig`: lists become tuples, integers floats, and `network` has dotted names."""
    hints = get_type_hints(TrainConfig)
    dotted = {name: value for name, value in options.items() if name.startswith("network.")}
    network = flatten(options.get("network", {})) | {name.partition(".")[2]: value for name, value in dotted.items()}
    options = {name: value for name, value in options.items() if name != "network" and name not in dotted}
    for name in options:
        if name not in hints:
            raise InputError(f"{where}there is no option {shown(name)}; {nearest(name, hints)}")
    if isinstance(options.get("size"), int):
        options = {**options, "size": 2 * [options["size"]]}
    typed = {name: convert(f"{where}{name}", value, hints[name]) for name, value in options.items()}
    return typed | ({"network": network} if network else {})


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} must be finite, got {value}")
    if name in MINIMUM and value is not None and value < MINIMUM[name]:
        raise InputError(f"{name} must be at least {MINIMUM[name]}, got {value}")
    if name in POSITIVE and value is not None and value <= 0:
        raise InputError(f"{name} must be greater than 0, got {value}")
    if name in FRACTIONS and not 0 <= value < 1:
        raise InputError(f"{name} must be at least 0 and below 1, got {value}")
