"""`gocor bench`: time and memory of networks, modules and training steps on this machine."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..utils.errors import InputError

WIDE = 160  # columns of a table that goes to a file


def bench(
    sections: Annotated[
        list[str] | None, typer.Argument(help="networks, modules, training, scaling; all where none is named.")
    ] = None,
    *,
    device: Annotated[str, typer.Option(help="`auto` is a GPU where there is one.")] = "auto",
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="What networks work in, by autocast if 16-bit.")
    ] = "float32",
    quick: Annotated[
        bool, typer.Option("--quick", help="Small images and batches: a minute or two on two cores.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="The sizes of a GPU on a CPU too: hours.")] = False,
    repeats: Annotated[int | None, typer.Option(min=1, help="Timed calls of each variant.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads, in place of torch's choice.")] = None,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = True,
    json: Annotated[Path | None, typer.Option(help="Also write what was measured to this file.")] = None,
) -> None:
    """Time and peak memory, plain correlation beside GOCor: networks, local layers, training steps, and scaling.

    Medians, in milliseconds; the variants of a row take turns, so that their ratio holds on a busy machine too. Memory
    is what is allocated on a GPU at most; on a CPU, by how much a process of its own grows.
    """
    import torch
    from rich.console import Console

    from ..bench.report import as_rich, write_json
    from ..bench.run import Settings, TableResult, measure, surroundings
    from ..bench.sections import SECTIONS, Scale, tables
    from ..models.weights import choose_device

    chosen = list(dict.fromkeys(sections or SECTIONS))
    for name in chosen:
        if name not in SECTIONS:
            raise InputError(f"no section is named {name!r}; there are {', '.join(SECTIONS)}")
    if quick and full:
        raise InputError("--quick and --full exclude each other")
    if json is not None and not json.parent.is_dir():
        raise FileNotFoundError(f"{json.parent} does not exist: create the folder first")
    where = choose_device(device)
    if where.type not in ("cpu", "cuda"):
        raise InputError(f"device must be auto, cpu or cuda, got {device!r}")
    if threads is not None:
        torch.set_num_threads(threads)
    cuda = where.type == "cuda"
    scale: Scale = "quick" if quick else "full" if full or cuda else "cpu"
    settings = Settings(where, repeats or (20 if cuda else 3 if quick else 5), memory)

    out = Console() if sys.stdout.isatty() else Console(width=WIDE)
    about = surroundings(settings, dtype)
    out.print(", ".join(f"{key} {value}" for key, value in about.items()), highlight=False)
    results: dict[str, list[TableResult]] = {}
    with Console(stderr=True).status("") as status:  # nothing where stderr is no terminal
        for name in chosen:
            results[name] = []
            for table in tables(name, scale, dtype, recorded=cuda):
                results[name].append(measure(table, settings, status.update))
                out.print(as_rich(results[name][-1]))
    if json is not None:
        write_json(json, about | {"scale": scale, "command": shlex.join(["gocor", *sys.argv[1:]])}, results)
        typer.echo(f"wrote {json}")
