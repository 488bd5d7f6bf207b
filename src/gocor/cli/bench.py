"""`gocor bench`: time and memory of networks, modules and training steps on this machine."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

from ..utils.errors import InputError
from .options import Device

if TYPE_CHECKING:
    import torch

    from ..bench.end_to_end import Speed
    from ..bench.run import TableResult

Precision = Literal["float32", "bfloat16", "float16"]
MATCH = "match"  # the section of whole files; the others are in `gocor.bench.sections`
RENDERED = 16  # pairs, 4 with --quick
FILE_WIDTH = 160  # columns of a table that is printed to a file or a pipe


def bench(
    sections: Annotated[
        list[str] | None, Argument(help="networks, modules, training, scaling, match; default: all but match.")
    ] = None,
    *,
    device: Device = "auto",
    dtype: Annotated[Precision, Option(help="Precision of networks; 16 bits by autocast.")] = "float32",
    quick: Annotated[bool, Option("--quick", help="Small images and batches: a minute or two on two cores.")] = False,
    full: Annotated[bool, Option("--full", help="On a CPU, measure the sizes of a GPU too: hours.")] = False,
    repeats: Annotated[int | None, Option(min=1, help="Timed calls of each variant.")] = None,
    threads: Annotated[int | None, Option(min=1, help="CPU threads; by default torch decides.")] = None,
    pairs: Annotated[Path | None, Option(help="For match: CSV file of pairs, in place of rendered ones.")] = None,
    model: Annotated[str, Option(help="For match: name of the network.")] = "glunet-gocor",
    batch: Annotated[int, Option(min=1, help="For match: number of pairs to match at once.")] = 4,
    memory: Annotated[bool, Option(help="Measure peak memory too.")] = True,
    json: Annotated[Path | None, Option(help="Also write the results to this JSON file.")] = None,
) -> None:
    """Measure time and memory of GOCor and of plain correlation.

    Prints one table per section: networks, local layers, training steps, and growth with the image size. Writes a file
    only with --json. Times are medians in milliseconds. The variants of a row take turns, so that their ratio is
    reliable on a busy machine too. Memory is the peak of allocated memory on a GPU, and the growth of a separate
    process on a CPU. The section match measures pairs per second from image files to result files, where the time
    goes, and OpenCV DIS and SIFT with MAGSAC++ on the same pairs.

    Example: gocor bench networks --quick
    """
    from rich.console import Console

    from ..bench.end_to_end import speeds_as_rich
    from ..bench.report import as_rich, write_json
    from ..bench.run import Settings, environment, measure
    from ..bench.sections import Scale, tables

    chosen = _check(sections, json, pairs, exclusive=quick and full)
    where = _device(device, threads)
    cuda = where.type == "cuda"
    scale: Scale = "quick" if quick else "full" if full or cuda else "cpu"
    settings = Settings(where, repeats or (20 if cuda else 3 if quick else 5), memory)

    out = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    about = environment(settings, dtype)
    out.print(", ".join(f"{key} {value}" for key, value in about.items()), highlight=False)
    results: dict[str, list[TableResult]] = {}
    speeds: list[Speed] = []
    with Console(stderr=True).status("") as status:  # prints nothing if stderr is no terminal
        for name in chosen:
            if name == MATCH:
                speeds = _matching(pairs, model, batch, where, dtype, quick=quick, report=status.update)
                out.print(speeds_as_rich(speeds))
                continue
            results[name] = []
            for table in tables(name, scale, dtype, recorded=cuda):
                results[name].append(measure(table, settings, status.update))
                out.print(as_rich(results[name][-1]))
    if json is not None:
        about |= {"scale": scale, "command": shlex.join(["gocor", *sys.argv[1:]])}
        write_json(json, about | ({"match": [speed.as_json() for speed in speeds]} if speeds else {}), results)
        echo(f"wrote {json}")


def _matching(
    listed: Path | None,
    model: str,
    batch: int,
    device: "torch.device",
    dtype: str,
    *,
    quick: bool,
    report: Callable[[str], None],
) -> "list[Speed]":
    """Measure pairs from files to files; on a GPU in 16 bits as `gocor match --fast` does."""
    from ..bench.end_to_end import measure_matching, render_pairs
    from ..matching.options import MatchOptions
    from ..pipeline.job import Job
    from ..pipeline.pairs import PairList

    if dtype == "float16":
        raise InputError("the section match measures float32, or bfloat16 as with gocor match --fast, got float16")
    job = Job(model=model, batch=batch, fast=dtype == "bfloat16", matching=MatchOptions(min_size=0 if quick else None))
    if listed is not None:
        return measure_matching(PairList(listed), job, device, report)
    with TemporaryDirectory(prefix="gocor-bench-") as folder:
        pairs = render_pairs(Path(folder), 4 if quick else RENDERED)
        return measure_matching(pairs, job, device, report)


def _device(name: str, threads: int | None) -> "torch.device":
    """The device to measure on; sets the number of CPU threads."""
    import torch

    from ..models.weights import choose_device

    device = choose_device(name)
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device must be auto, cpu or cuda, got {name!r}")
    if threads is not None:
        torch.set_num_threads(threads)
    return device


def _check(sections: list[str] | None, json: Path | None, pairs: Path | None, *, exclusive: bool) -> list[str]:
    """Check the options; returns the sections to measure."""
    from ..bench.sections import SECTIONS

    chosen = list(dict.fromkeys(sections or SECTIONS))
    for name in chosen:
        if name not in (*SECTIONS, MATCH):
            raise InputError(f"no section is named {name!r}; there are {', '.join((*SECTIONS, MATCH))}")
    if pairs is not None and MATCH not in chosen:
        raise InputError("--pairs is for the section match")
    if exclusive:
        raise InputError("--quick and --full exclude each other")
    if json is not None and not json.parent.is_dir():
        raise FileNotFoundError(f"{json.parent} does not exist: create the folder first")
    return chosen
