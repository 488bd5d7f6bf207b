"""`gocor eval`: score networks and baselines on data sets, and print, save and draw the results."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..matching.options import MAX_SIZE, MatchOptions
from .errors import say, warnings_as_lines

if TYPE_CHECKING:
    from ..evaluation.benchmarks import Benchmark
    from ..evaluation.named_matchers import NamedMatcher
    from ..evaluation.runner import Evaluation

WIDE = 1000  # columns of a table that goes to a file


def evaluate(
    dataset: Annotated[
        str,
        typer.Argument(
            help="dev (every set found in a folder of samples), hpatches, hpatches-240, hpatches-i, eth3d, megadepth, "
            "kitti2012, kitti2015, kitti, sintel-clean, sintel-final, sintel, tss, middlebury, stereo, flyingchairs, "
            "flyingthings3d, hd1k, or manifest (a CSV or JSON file of your own pairs)."
        ),
    ],
    *,
    root: Annotated[Path, typer.Option(help="Folder of the data set; of a manifest, the file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="One of `gocor models`, NAME:CHECKPOINT, or identity, dis, farneback, sift-homography; repeat it to "
            "compare."
        ),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(help="`default` for those that ship, `none`, a checkpoint, or a folder of NAME.safetensors."),
    ] = "default",
    rules: Annotated[
        Literal["paper", "text", "inside"] | None,
        typer.Option(help="The protocol behind the paper's numbers (the default), that of its text, or one for all."),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="iterations, ablation, initializers or eta, in place of a comparison of models.")
    ] = None,
    device: Annotated[str, typer.Option(help="`auto` is a GPU where there is one.")] = "auto",
    iters_local: Annotated[int | None, typer.Option(min=0, help="Iterations of the local GOCor layers.")] = None,
    iters_global: Annotated[int | None, typer.Option(min=0, help="Iterations of the global GOCor layer.")] = None,
    min_size: Annotated[
        int | None,
        typer.Option(min=0, help="Longer side that a network works at, at least; 0 enlarges no image."),
    ] = None,
    max_size: Annotated[
        int, typer.Option(min=0, help="Longer side that a network works at, at most; 0 for the images' own.")
    ] = MAX_SIZE,
    align: Annotated[
        bool, typer.Option("--align", help="Bring far images closer and straighten flat scenes, as `gocor match` does.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many pairs of each data set.")] = None,
    geometry: Annotated[
        bool, typer.Option("--geometry", help="Also estimate homographies and poses from the flow, and their AUC.")
    ] = False,
    sheets: Annotated[
        int, typer.Option(min=0, help="Pairs of each data set to draw a sheet of, with the first two models.")
    ] = 0,
    pixel: Annotated[str | None, typer.Option(help="X,Y in the reference whose confidences the sheets show.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Score pairs again that are done.")] = False,
) -> None:
    """Score networks and baselines on a data set: a table here; JSON, Markdown and plots in OUTPUT.

    An interrupted command goes on where it was.
    """
    from ..evaluation.benchmarks import open_benchmark
    from ..evaluation.named_matchers import find_matchers
    from ..evaluation.reports import AREAS, write_report
    from ..evaluation.studies import draw_study, run_times
    from ..evaluation.studies import study as study_of
    from ..utils.files import check_folder, write_bytes_atomically

    check_folder(output)
    if study is None and not model:
        raise ValueError("give at least one --model, or a --study")
    if study is not None and (iters_local is not None or iters_global is not None):
        raise ValueError("a study sets iterations by itself: leave out --iters-local and --iters-global")
    if study is not None and align:
        raise ValueError("a study is of networks alone: leave out --align")
    if sheets and (study is not None or len(model or []) < 2):
        raise ValueError("--sheets compares two models: give --model twice, and no --study")
    if pixel is not None and not sheets:
        raise ValueError("--pixel is for the sheets: give --sheets too")
    chosen = _pixel(pixel)
    options = MatchOptions(
        iters_local=iters_local, iters_global=iters_global, min_size=min_size, max_size=max_size or None, align=align
    )
    if study is not None:
        rows = study_of(study, model or (), options, weights=weights, device=device)
    else:
        rows = find_matchers(model or [], options, weights=weights, device=device)
    benchmarks = open_benchmark(dataset, root, rules=rules, geometry=geometry, limit=limit)
    results = _run(rows, benchmarks, output, root, overwrite=overwrite)
    title = f"{dataset}: {study}" if study else dataset
    command = shlex.join(["gocor", *sys.argv[1:]])
    files = write_report(results, output, title=title, command=command, rules=rules, study=study)
    times = run_times(rows, benchmarks) if study == "iterations" else None
    for name, content in draw_study(rows, results, times).items() if study else ():
        write_bytes_atomically(output / name, content)
        files.append(output / name)
    if sheets:
        from ..evaluation.sheets import write_sheets

        files += write_sheets(rows[:2], benchmarks, output / "sheets", count=sheets, pixel=chosen)
    _print(results)
    if geometry and not any(key in one.summary for of in results.values() for one in of.values() for key in AREAS):
        say("warning: no pair has a homography or calibrated cameras, --geometry has nothing to estimate")
    for file in files:
        typer.echo(f"wrote {file}")


def _run(
    rows: "list[NamedMatcher]", benchmarks: "dict[str, Benchmark]", output: Path, root: Path, *, overwrite: bool
) -> "dict[str, dict[str, Evaluation]]":
    import re
    import shutil

    from .batch import progress_bar

    results = {}
    pairs = sum(len(benchmark.dataset) for benchmark in benchmarks.values())
    with progress_bar(pairs * len(rows), shown=True) as advance:
        for row in rows:
            folder = output / "pairs" / re.sub(r"[^\w.-]+", "_", row.label, flags=re.ASCII)
            if overwrite and folder.is_dir():
                shutil.rmtree(folder)
            with warnings_as_lines():
                row.load()
            note = {"root": str(root.resolve())}
            results[row.label] = row.evaluate(benchmarks, save=folder, note=note, progress=lambda *_: advance())
    return results


def _print(results: "dict[str, dict[str, Evaluation]]") -> None:
    from rich.console import Console

    from ..evaluation.reports import terminal_tables

    console = Console()
    width = console.width if console.is_terminal else WIDE
    for table in terminal_tables(results, width):
        Console(width=width).print(table)


def _pixel(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--pixel must be X,Y, got {text!r}") from None
    return x, y
