"""`gocor study`: train the variants that a study of the paper compares, evaluate them, and print its table."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option, echo

from ..utils.errors import InputError
from ..utils.files import check_folder
from .options import Device, Output
from .train import Data, Objects, Steps, TimeLimit

if TYPE_CHECKING:
    from ..evaluation.benchmarks import Benchmark

Name = Annotated[
    str,
    Argument(
        help="Study: ablation (I to VI, dynamic pairs), ablation-static (also the fusion of both directions), "
        "initializers, eta, training-data (static or dynamic pairs), training-iterations, iterations (in evaluation), "
        "run-time or regularizer (with the learnt values)."
    ),
]
Eval = Annotated[
    list[str] | None,
    Option(
        "--eval",
        metavar="NAME=DIR",
        help="Data set to evaluate on, by its name in `gocor eval`; repeatable.",
        show_default="pairs made from the photos",
    ),
]
Weights = Annotated[
    str | None,
    Option(help="Only for iterations: a checkpoint, or `default` for the weights of the package, instead of training."),
]
Model = Annotated[
    str | None, Option(help="Only for regularizer: basenet-gocor or glunet-gocor.", show_default="basenet-gocor")
]
Runs = Annotated[
    Path | None,
    Option(
        help="Folder of the training runs. Studies that share it train common variants once.",
        show_default="OUTPUT/runs",
    ),
]
StopAfter = Annotated[
    float | None,
    Option(min=0, metavar="MINUTES", help="Stop after this time. Run the same command again to continue."),
]
Seeds = Annotated[int, Option(min=1, help="Number of training runs of each variant.")]
Quick = Annotated[
    bool, Option("--quick", help="Try a study: small networks and few steps, which takes minutes on a CPU.")
]
Limit = Annotated[
    int | None, Option(min=1, help="Largest number of pairs of each data set, evenly spaced.", show_default="all")
]
Sheets = Annotated[int, Option(min=0, help="Number of pairs of each data set to draw, with all variants side by side.")]
Assignments = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Option of every training run, as in `gocor train`; repeatable."),
]


def study(
    name: Name,
    *,
    output: Output,
    data: Data = None,
    objects: Objects = None,
    eval_: Eval = None,
    weights: Weights = None,
    model: Model = None,
    runs: Runs = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    steps: Steps = None,
    time_limit: TimeLimit = None,
    stop_after: StopAfter = None,
    limit: Limit = None,
    sheets: Sheets = 0,
    device: Device = "auto",
    assignments: Assignments = None,
) -> None:
    """Repeat a study of the paper.

    Trains all variants of the study with the same schedule and evaluates them. Prints the results beside those of the
    paper. Writes study.md, study.json and plots to OUTPUT, training runs to OUTPUT/runs, and the scores of each pair to
    OUTPUT/pairs. Run the same command again to continue an interrupted study.

    Example: gocor study ablation --data photos --objects cutouts --eval hpatches=hpatches --seeds 3 -o ablation
    """
    for folder in (output, *([runs] if runs else [])):
        check_folder(folder)
    from ..studies.definitions import STUDIES
    from ..studies.report import terminal_table, write_study
    from ..studies.run import QUICK, StudyRun, run_study
    from ..training.config import merge_options, parse_assignment, typed_options
    from ..utils.options import nearest

    if name not in STUDIES:
        raise InputError(f"no study is named {name!r}; {nearest(name, STUDIES)}")
    chosen, notes = STUDIES[name] if model is None else STUDIES[name].with_model(model), []
    given: dict[str, Any] = {
        "data": [
            str(path) for path in data or _own_photos(needed=not quick and weights is None and name != "run-time")
        ],
        "objects": [str(path) for path in objects or []],
        "steps": steps,
        "time_limit": time_limit,
    }
    options = typed_options({key: value for key, value in given.items() if value not in (None, [])})
    options = merge_options(options, typed_options(dict(parse_assignment(text) for text in assignments or [])))
    if quick:
        options = merge_options(typed_options(QUICK), options)
        notes.append("Quick: small networks with random features and few steps. The figures say nothing about GOCor.")
        if not objects:
            options = {"preset": "static"} | options
    if "preset" in options:
        notes.append(f"All variants were trained on pairs of the preset {options['preset']}.")
    benchmarks, roots = _benchmarks(eval_ or [], options["data"], limit, quick=quick)
    run = StudyRun(chosen, benchmarks, output, options, range(seeds), device, weights=weights, runs=runs, roots=roots)
    if not run_study(run, stop_after=stop_after):
        echo(f"stopped before the study was complete: run the command again to continue in {output}")
        raise Exit(1 if stop_after is None else 0)
    files = write_study(run, command=shlex.join(["gocor", *sys.argv[1:]]), notes=notes)
    if sheets:
        from ..studies.sheets import write_study_sheets

        files += write_study_sheets(run, count=sheets)
    _print(terminal_table(run))
    for file in files:
        echo(f"wrote {file}")


def _own_photos(*, needed: bool) -> list[Path]:
    """The folder of the two photos that ship, which are enough to try a study."""
    if needed:
        raise InputError("a study trains networks: give --data with photos, or try it with --quick")
    from ..models.zoo import SHIPPED

    return [SHIPPED.with_name("assets")]


def _benchmarks(
    entries: list[str], photos: Any, limit: int | None, *, quick: bool
) -> "tuple[dict[str, Benchmark], dict[str, str]]":
    """The data sets to evaluate on, and where their pairs come from, by name."""
    from ..evaluation.benchmarks import open_benchmark
    from ..studies.data import synthetic_benchmark

    found: dict[str, Benchmark] = {}
    roots: dict[str, str] = {}
    for entry in entries:
        name, equals, folder = entry.partition("=")
        if not equals:
            raise InputError(f"a data set is given as NAME=DIR, got {entry!r}")
        opened = open_benchmark(name, folder, limit=limit)
        if twice := found.keys() & opened.keys():
            raise InputError(f"{min(twice)} is given twice")
        found |= opened
        roots |= dict.fromkeys(opened, str(Path(folder).resolve()))
    if found:
        return found, roots
    count = limit or (4 if quick else 32)
    made_of = f"{count} pairs of {', '.join(str(Path(path).resolve()) for path in photos)}"
    return {"synthetic": synthetic_benchmark(photos, count=count)}, {"synthetic": made_of}


def _print(table: Any) -> None:
    from rich.console import Console

    from .evaluate import FILE_WIDTH

    console = Console()
    Console(width=console.width if console.is_terminal else FILE_WIDTH).print(table)
