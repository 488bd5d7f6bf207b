"""`gocor bench`: time and memory of networks, modules and training steps on this machine."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

from ..utils.defaults import MODEL
from ..utils.errors import InputError
from ..utils.files import check_target
from .options import Device

if TYPE_CHECKING:
    import torch

    from ..bench.end_to_end import Speed
    from ..bench.run import TableResult
    from ..pipeline.job import Job

Precision = Literal["float32", "bfloat16", "float16"]
MATCH = "match"  # the section of whole files; the others are in `gocor.bench.sections`
RENDERED, RENDERED_QUICK, RENDERED_GPU = 16, 4, 128  # pairs
FILE_WIDTH = 160  # columns of a table that is printed to a file or a pipe


def bench(
    sections: Annotated[
        list[str] | None,
        Argument(
            help="What to measure: networks, recurrent, modules, training, scaling, match.",
            show_default="all but match",
        ),
    ] = None,
    *,
    device: Device = "auto",
    dtype: Annotated[Precision, Option(help="Precision of the networks; 16 bits by autocast.")] = "float32",
    quick: Annotated[
        bool, Option("--quick", help="Small images and batches: one or two minutes on two cores.")
    ] = False,
    full: Annotated[
        bool, Option("--full", help="On a CPU, also measure the large sizes of a GPU, which takes hours.")
    ] = False,
    repeats: Annotated[
        int | None,
        Option(min=1, help="Number of timed calls of each variant.", show_default="20 on a GPU, 3 or 5 on a CPU"),
    ] = None,
    threads: Annotated[int | None, Option(min=1, help="Number of CPU threads.", show_default="torch decides")] = None,
    pairs: Annotated[Path | None, Option(help="For match: CSV file of pairs to use instead of rendered ones.")] = None,
    model: Annotated[str, Option(help="For match: name of the network.")] = MODEL,
    batch: Annotated[int, Option(min=1, help="For match: number of pairs that the network matches at once.")] = 4,
    formats: Annotated[str, Option(help="For match: formats of the flow file, as in gocor match.")] = "flo",
    processes: Annotated[
        int, Option(min=1, help="For match: also measure this number of processes on one device.")
    ] = 1,
    memory: Annotated[bool, Option(help="Also measure peak memory.")] = True,
    json: Annotated[Path | None, Option(help="Also write the results to this JSON file.")] = None,
) -> None:
    """Measure time and memory of GOCor and of plain correlation.

    Prints tables for each section: networks, the recurrent network (recurrent), local layers (modules), training steps
    (training), and growth with the image size (scaling). Writes a file only with --json. Times are medians in
    milliseconds. The variants of a row are timed in turns, so their ratio is reliable on a busy machine too. Memory is
    the peak of allocated memory on a GPU, and the growth of a separate process on a CPU.

    The section match measures pairs per second from image files to result files, the time of each part, and OpenCV DIS
    and SIFT with MAGSAC++ on the same pairs. By default these are rendered pairs of 480×640 pixels, or 128 pairs of
    768×1024 pixels on a GPU. The network is measured without and with pictures, after batches that warm up.

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
                job = _job(model, batch, formats, dtype, quick=quick)
                speeds = _matching(pairs, job, where, processes, quick=quick, report=status.update)
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


def _job(model: str, batch: int, formats: str, dtype: str, *, quick: bool) -> "Job":
    """What the section match does."""
    from ..matching.options import MatchOptions
    from ..pipeline.job import Job

    if dtype == "float16":
        raise InputError("the section match measures float32 or bfloat16, got float16")
    names = [] if formats == "none" else [name.strip() for name in formats.split(",") if name.strip()]
    precision: Literal["bf16", "float32"] = "bf16" if dtype == "bfloat16" else "float32"
    matching = MatchOptions(min_size=0 if quick else None, precision=precision)
    return Job(model=model, batch=batch, fast=dtype == "bfloat16", matching=matching, formats=names)


def _matching(
    listed: Path | None,
    job: "Job",
    device: "torch.device",
    processes: int,
    *,
    quick: bool,
    report: Callable[[str], None],
) -> "list[Speed]":
    """Measure pairs from files to files."""
    from ..bench.end_to_end import SIZES, SIZES_GPU, measure_matching, render_pairs
    from ..matching.files import check_formats
    from ..pipeline.pairs import PairList

    check_formats(job.formats)
    if listed is not None:
        return measure_matching(PairList(listed), job, device, report, processes=processes)
    large = device.type == "cuda" and not quick
    count = RENDERED_QUICK if quick else RENDERED_GPU if large else RENDERED
    with TemporaryDirectory(prefix="gocor-bench-") as folder:
        report(f"rendering {count} pairs")
        pairs = render_pairs(Path(folder), count, SIZES_GPU if large else SIZES, device)
        return measure_matching(pairs, job, device, report, processes=processes)


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
        raise InputError("--quick and --full cannot be combined")
    if json is not None:
        check_target(json)
    return chosen
