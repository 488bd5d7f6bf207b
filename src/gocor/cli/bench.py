"""`gocor bench`: time and memory of networks, modules and training steps on this machine."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..utils.errors import InputError
from .options import Device

if TYPE_CHECKING:
    from ..bench.run import TableResult

FILE_WIDTH = 160  # columns of a table that is printed to a file or a pipe

Sections = Annotated[list[str] | None, typer.Argument(help="networks, modules, training, scaling; all by default.")]
Precision = Annotated[
    Literal["float32", "bfloat16", "float16"], typer.Option(help="Precision of networks; 16 bits by autocast.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Small images and batches: a minute or two on two cores.")]
Full = Annotated[bool, typer.Option("--full", help="On a CPU, measure the sizes of a GPU too: hours.")]
Repeats = Annotated[int | None, typer.Option(min=1, help="Timed calls of each variant.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; by default torch decides.")]
Memory = Annotated[bool, typer.Option(help="Measure peak memory too.")]
Json = Annotated[Path | None, typer.Option(help="Also write the results to this JSON file.")]


def bench(
    sections: Sections = None,
    *,
    device: Device = "auto",
    dtype: Precision = "float32",
    quick: Quick = False,
    full: Full = False,
    repeats: Repeats = None,
    threads: Threads = None,
    memory: Memory = True,
    json: Json = None,
) -> None:
    """Measure time and peak memory of GOCor beside plain correlation: networks, layers, training steps, scaling.

    Prints one table per section, and writes a file only with --json. Times are medians in milliseconds. The variants
    of a row take turns, so that their ratio is reliable on a busy machine too. Memory is the peak of allocated memory
    on a GPU, and the growth of a separate process on a CPU.

    Example: gocor bench networks --quick
    """
    import torch
    from rich.console import Console

    from ..bench.report import as_rich, write_json
    from ..bench.run import Settings, measure, surroundings
    from ..bench.sections import Scale, tables
    from ..models.weights import choose_device

    chosen = _check(sections, json, exclusive=quick and full)
    where = choose_device(device)
    if where.type not in ("cpu", "cuda"):
        raise InputError(f"device must be auto, cpu or cuda, got {device!r}")
    if threads is not None:
        torch.set_num_threads(threads)
    cuda = where.type == "cuda"
    scale: Scale = "quick" if quick else "full" if full or cuda else "cpu"
    settings = Settings(where, repeats or (20 if cuda else 3 if quick else 5), memory)

    out = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    about = surroundings(settings, dtype)
    out.print(", ".join(f"{key} {value}" for key, value in about.items()), highlight=False)
    results: dict[str, list[TableResult]] = {}
    with Console(stderr=True).status("") as status:  # prints nothing if stderr is no terminal
        for name in chosen:
            results[name] = []
            for table in tables(name, scale, dtype, recorded=cuda):
                results[name].append(measure(table, settings, status.update))
                out.print(as_rich(results[name][-1]))
    if json is not None:
        write_json(json, about | {"scale": scale, "command": shlex.join(["gocor", *sys.argv[1:]])}, results)
        typer.echo(f"wrote {json}")


def _check(sections: list[str] | None, json: Path | None, *, exclusive: bool) -> list[str]:
    """The sections to measure, after the options were checked."""
    from ..bench.sections import SECTIONS

    chosen = list(dict.fromkeys(sections or SECTIONS))
    for name in chosen:
        if name not in SECTIONS:
            raise InputError(f"no section is named {name!r}; there are {', '.join(SECTIONS)}")
    if exclusive:
        raise InputError("--quick and --full exclude each other")
    if json is not None and not json.parent.is_dir():
        raise FileNotFoundError(f"{json.parent} does not exist: create the folder first")
    return chosen
