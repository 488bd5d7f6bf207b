"""`gocor train`: train a network on photos or on data sets with optical flow."""

from pathlib import Path
from typing import Annotated, Any

from typer import Context, Exit, Option

from ..utils.errors import InputError
from .options import PRESETS, complete_model

# Parameters that are no options of the run itself:
NOT_IN_CONFIG = ("recipe", "config", "resume", "stop_after", "assignments")

Data = Annotated[
    list[Path] | None, Option(metavar="PHOTOS", help="Folder or zip file of photos to train on; repeatable.")
]
Model = Annotated[
    str | None,
    Option(
        autocompletion=complete_model,
        help="Name of a network; `gocor models` lists them.",
        show_default="basenet-gocor",
    ),
]
Output = Annotated[Path | None, Option("--output", "-o", help="Folder of the run.", show_default="runs/MODEL")]
Config = Annotated[Path | None, Option(help="TOML file of options. Options on the command line override it.")]
Resume = Annotated[
    bool, Option("--resume", help="Continue the run in OUTPUT from its last checkpoint, with its options.")
]
Init = Annotated[
    Path | None,
    Option(
        help="Checkpoint to start from; `default`: the weights of the package.", show_default="random initial weights"
    ),
]
Objects = Annotated[
    list[Path] | None,
    Option(
        metavar="CUTOUTS",
        help="Objects that move in front of the photos: a folder or zip file of images with transparency, or a COCO "
        "file (with --set object_images=DIR); repeatable.",
    ),
]
Preset = Annotated[
    str | None,
    Option(
        help=f"{PRESETS} Several can be mixed, as in dynamic+flow.",
        show_default="dynamic with --objects, otherwise static",
    ),
]
Recipe = Annotated[
    str | None,
    Option(
        help="Name of a set of options that is part of the package, such as pwcnet-gocor-things. Options on the "
        "command line override it."
    ),
]
Flow = Annotated[
    list[str] | None,
    Option(
        metavar="NAME[:OPTION=VALUE,…]=DIR",
        help="Data set with optical flow to train on instead of photos, such as sintel:pass=final=DIR; repeatable.",
    ),
]
FlowRoot = Annotated[Path | None, Option(help="Folder in which data sets of --flow without a DIR are searched.")]
Eval = Annotated[
    list[str] | None,
    Option("--eval", metavar="NAME=DIR", help="Data set to evaluate on at each validation; repeatable."),
]
OWN = "depends on the network"
Steps = Annotated[int | None, Option(help="Number of training steps.", show_default=OWN)]
Batch = Annotated[
    int | None,
    Option(
        help="Pairs per step, over all processes together.",
        show_default="depends on the network; at most 4 on a CPU",
    ),
]
Size = Annotated[int | None, Option(help="Side of the square training images, in pixels.", show_default=OWN)]
LearningRate = Annotated[float | None, Option(help="Highest learning rate of the schedule.", show_default=OWN)]
Seed = Annotated[int | None, Option(help="Random seed of the initial weights and of the pairs.", show_default="0")]
Device = Annotated[
    str | None, Option(help="Device to train on: `cpu`, `cuda`, ….", show_default="a GPU if there is one")
]
TimeLimit = Annotated[
    float | None,
    Option(
        metavar="MINUTES",
        help="End the run after this training time in total, over all resumed parts.",
        show_default="none",
    ),
]
StopAfter = Annotated[
    float | None,
    Option(min=0, metavar="MINUTES", help="Stop this process after this time. --resume continues the run."),
]
Assignments = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other option, such as loss=published or network.global.eta=0.1; repeatable.",
    ),
]


def train(
    context: Context,
    data: Data = None,
    *,
    model: Model = None,
    output: Output = None,
    recipe: Recipe = None,
    config: Config = None,
    resume: Resume = False,
    init: Init = None,
    objects: Objects = None,
    preset: Preset = None,
    flow: Flow = None,
    flow_root: FlowRoot = None,
    eval_: Eval = None,
    steps: Steps = None,
    batch: Batch = None,
    size: Size = None,
    lr: LearningRate = None,
    seed: Seed = None,
    device: Device = None,
    time_limit: TimeLimit = None,
    stop_after: StopAfter = None,
    assignments: Assignments = None,
) -> None:
    """Train a network on a folder of photos.

    Image pairs with exact flow are made from the photos during training. Writes to OUTPUT: best.safetensors (the
    weights with the lowest validation error, for `gocor match --weights`) with its model card card.md,
    latest.safetensors (the weights of the last checkpoint), final.safetensors, last.pt (for --resume), config.toml,
    log.jsonl, pictures of each validation, and event files if TensorBoard is installed.

    Ctrl-C ends the command after the current step and saves last.pt. While it runs, a second command with the same
    OUTPUT is refused. Started by `torchrun`, several processes train together.

    Example: gocor train --data photos --model basenet-gocor -o runs/mine
    """
    from ..training.config import FILE, make_config, merge_options, parse_assignment, read_toml
    from ..training.loop import train
    from ..training.recipes import recipe_file

    given = {key.rstrip("_"): value for key, value in context.params.items() if key not in NOT_IN_CONFIG}
    options = {key: _plain(value) for key, value in given.items() if value not in (None, (), [])}
    options |= dict(parse_assignment(text) for text in assignments or [])
    if config is not None:
        options = merge_options(read_toml(config), options)
    if recipe is not None:
        options = merge_options(read_toml(recipe_file(recipe)), options)
    saved = Path(options.get("output") or f"runs/{options.get('model', 'basenet-gocor')}") / FILE
    if resume and not saved.exists() and not options.keys() & {"data", "flow"}:
        raise InputError(
            f"{saved.parent} holds no run to resume: give the folder of one by --output, or --data to start"
        )
    run = make_config(options, file=saved if resume and saved.exists() else None)
    outcome = train(run, resume=resume, stop_after=stop_after)
    if outcome.signal is not None:
        raise Exit(128 + outcome.signal)


def _plain(value: Any) -> Any:
    """A value of the command line as a TOML file would have it: paths are strings."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
