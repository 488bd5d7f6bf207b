"""`gocor train`."""

from pathlib import Path
from typing import Annotated, Any

import typer


def train(
    data: Annotated[
        list[Path] | None, typer.Option(help="Folder, zip or file of photos that pairs are made of; repeatable.")
    ] = None,
    *,
    model: Annotated[str | None, typer.Option(help="One of `gocor models`; basenet-gocor by default.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the run; runs/MODEL by default.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of options; those of the command line win over it.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint of OUTPUT, with its options.")
    ] = False,
    init: Annotated[Path | None, typer.Option(help="Checkpoint to start from.")] = None,
    objects: Annotated[
        list[Path] | None, typer.Option(help="Cut-outs that move on top of the photos; repeatable.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="How pairs are made: static, dynamic, ….")] = None,
    flow: Annotated[
        list[str] | None, typer.Option(metavar="NAME=DIR", help="Data set with flow, in place of photos; repeatable.")
    ] = None,
    eval_: Annotated[
        list[str] | None,
        typer.Option("--eval", metavar="NAME=DIR", help="Data set to evaluate on at each validation; repeatable."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Length of the run.")] = None,
    batch: Annotated[int | None, typer.Option(help="Pairs of a step, over all processes.")] = None,
    size: Annotated[int | None, typer.Option(help="Side of the images that pairs are made of.")] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of start values and pairs.")] = None,
    device: Annotated[str | None, typer.Option(help="`auto` is a GPU where there is one.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="End the run after so much training, resumes included.")
    ] = None,
    stop_after: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Stop this process after so long; --resume continues.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other option of docs/training.md.")
    ] = None,
) -> None:
    """Train a network on a folder of photos.

    OUTPUT gets config.toml, log.jsonl and TensorBoard's files, pictures of each validation, best.safetensors with its
    card.md, which `gocor match --weights` takes, final.safetensors, and last.pt, which --resume goes on from. Under
    `torchrun` several processes train together.
    """
    from ..training.config import FILE, make_config, parse_assignment, read_toml
    from ..training.loop import train

    given: dict[str, Any] = {
        "model": model,
        "output": _text(output),
        "init": _text(init),
        "data": _texts(data),
        "objects": _texts(objects),
        "preset": preset,
        "flow": flow,
        "eval": eval_,
        "steps": steps,
        "batch": batch,
        "size": size,
        "lr": lr,
        "seed": seed,
        "device": device,
        "time_limit": time_limit,
    }
    options = {key: value for key, value in given.items() if value not in (None, [])}
    options |= dict(parse_assignment(text) for text in assignments or [])
    if config is not None:
        options = read_toml(config) | options
    saved = Path(options.get("output") or f"runs/{options.get('model', 'basenet-gocor')}") / FILE
    run = make_config(options, file=saved if resume and saved.exists() else None)
    outcome = train(run, resume=resume, stop_after=stop_after)
    if outcome.signal is not None:
        raise typer.Exit(128 + outcome.signal)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _texts(paths: list[Path] | None) -> list[str]:
    return [str(path) for path in paths or []]
