"""`gocor eval`: score networks and baselines on data sets; print, save and draw the results."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option, echo

from ..utils.defaults import MAX_SIZE
from ..utils.errors import InputError
from ..utils.files import check_folder
from ..utils.locks import locked_folder
from .errors import say, warnings_as_lines
from .options import (
    Device,
    ItersGlobal,
    ItersLocal,
    Json,
    MaxSize,
    MinSize,
    Output,
    Overwrite,
    Precision,
    SecondLook,
    Updates,
    complete_model,
)

if TYPE_CHECKING:
    from ..evaluation.benchmarks import Benchmark
    from ..evaluation.named_matchers import NamedMatcher
    from ..evaluation.runner import Evaluation

    Results = dict[str, dict[str, Evaluation]]

RuleName = Literal["paper", "text", "inside"]
ConfidenceName = Literal["learnt", "consistency"]
FILE_WIDTH = 1000  # columns of a table that is printed to a file or a pipe

Dataset = Annotated[
    str,
    Argument(
        help="Name of a data set: hpatches, hpatches-240, hpatches-i, eth3d, megadepth, kitti2012, kitti2015, kitti "
        "(both), sintel-clean, "
        "sintel-final, sintel (both), tss, middlebury, stereo, flyingchairs, flyingthings3d, hd1k, manifest (a CSV or "
        "JSON file of your own pairs), or dev (every data set found in a folder)."
    ),
]
Root = Annotated[Path, Option(help="Folder of the data set, or the CSV or JSON file of a manifest.")]
Models = Annotated[
    list[str] | None,
    Option(
        "--model",
        metavar="NAME",
        autocompletion=complete_model,
        help="Name of a network (`gocor models` lists them), NAME:CHECKPOINT, or a baseline: identity, dis, farneback, "
        "sift-homography. Repeat the option to compare several.",
    ),
]
Weights = Annotated[
    str,
    Option(
        help="For models without a CHECKPOINT: a checkpoint file, or a folder of files NAME.safetensors; `default`: "
        "the weights of the package; `none`: untrained networks.",
    ),
]
Rules = Annotated[
    RuleName | None,
    Option(
        help="Protocol. paper: that of the paper's numbers; text: that of the paper's text, which averages Sintel over "
        "images; inside: the same for all data sets, over points whose true target lies inside the query.",
        show_default="inside for dev and manifest, otherwise paper",
    ),
]
Fast = Annotated[bool, Option("--fast", help="Trade accuracy for speed, as `gocor match --fast`.")]
Align = Annotated[
    bool,
    Option(
        "--align",
        help="Align images with a wide baseline and treat planar scenes, as `gocor match` does by default. Without it, "
        "the network alone is scored.",
    ),
]
Limit = Annotated[
    int | None, Option(min=1, help="Largest number of pairs of each data set, evenly spaced.", show_default="all")
]
Geometry = Annotated[bool, Option("--geometry", help="Also score homographies and camera poses from the flow (AUC).")]
Calibration = Annotated[
    bool, Option("--calibration", help="Also measure how often matches of each confidence are right (ECE, AUC, AUSE).")
]
Confidence = Annotated[
    ConfidenceName | None,
    Option(
        help="For --calibration: the confidence that the network has learnt, or that of the forward-backward error.",
        show_default="learnt if the network learns it",
    ),
]
Sheets = Annotated[int, Option(min=0, help="Number of pairs of each data set to draw, with all models side by side.")]
Pixel = Annotated[
    str | None,
    Option(
        metavar="X,Y",
        help="For --sheets: the reference pixel whose scores are drawn.",
        show_default="a visible pixel near the centre",
    ),
]


def evaluate(
    dataset: Dataset,
    *,
    root: Root,
    output: Output,
    model: Models = None,
    weights: Weights = "default",
    rules: Rules = None,
    device: Device = "auto",
    iters_local: ItersLocal = None,
    iters_global: ItersGlobal = None,
    updates: Updates = None,
    precision: Precision = None,
    second_look: SecondLook = None,
    fast: Fast = False,
    min_size: MinSize = None,
    max_size: MaxSize = MAX_SIZE,
    align: Align = False,
    limit: Limit = None,
    geometry: Geometry = False,
    calibration: Calibration = False,
    confidence: Confidence = None,
    sheets: Sheets = 0,
    pixel: Pixel = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Score networks and baselines on a data set.

    Prints a table of end-point errors in pixels, and of PCK and other metrics in percent. Writes results.json,
    results.md and plots to OUTPUT, the scores of each pair to OUTPUT/pairs, and with --sheets pictures to
    OUTPUT/sheets. An interrupted command can be run again: finished pairs are skipped. While it runs, a second command
    with the same OUTPUT is refused.

    Example: gocor eval hpatches --root hpatches --model glunet-gocor -o results
    """
    models = model or []
    iters: dict[str, Any] = {"iters_local": iters_local, "iters_global": iters_global}
    check_folder(output)
    _check(models, sheets, pixel=pixel, confidence=confidence if not calibration else None)
    shown_pixel = _parse_pixel(pixel)

    from ..evaluation.benchmarks import open_benchmark
    from ..evaluation.named_matchers import find_matchers
    from ..evaluation.reports import write_report
    from ..evaluation.sheets import write_sheets
    from ..matching.options import MatchOptions

    options = MatchOptions(
        updates=updates,
        min_size=min_size,
        max_size=max_size or None,
        align=align,
        confidence=confidence,
        precision=precision,
        second_look=second_look,
        fast=fast,
        **iters,
    )
    rows = find_matchers(models, options, weights=weights, device=device)
    benchmarks = open_benchmark(dataset, root, rules=rules, geometry=geometry, calibration=calibration, limit=limit)
    with locked_folder(output):  # a report is that of one command
        results = _run(rows, benchmarks, output, root, overwrite=overwrite)
        command = shlex.join(["gocor", *sys.argv[1:]])
        files = write_report(results, output, title=dataset, command=command, rules=rules)
        if sheets:
            files += write_sheets(rows, benchmarks, output / "sheets", count=sheets, pixel=shown_pixel)
    if json:
        _print_json(results, files)
        return
    _print(results, geometry=geometry, calibration=calibration)
    for file in files:
        echo(f"wrote {file}")


def _check(models: list[str], sheets: int, *, pixel: str | None, confidence: str | None) -> None:
    """Check that the options fit together; `confidence` is that of a command without --calibration."""
    if not models:
        raise InputError("give at least one --model")
    if sheets and len(models) < 2:
        raise InputError("--sheets compares models: give --model twice or more")
    if pixel is not None and not sheets:
        raise InputError("--pixel is for the sheets: give --sheets too")
    if confidence is not None:
        raise InputError("--confidence is for the calibration: give --calibration too")


def _parse_pixel(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        x, y = (float(part) for part in text.split(","))
        if not (0 <= x < float("inf") and 0 <= y < float("inf")):
            raise ValueError
    except ValueError:
        raise InputError(f"--pixel must be X,Y, got {text!r}") from None
    return x, y


def _run(
    rows: "list[NamedMatcher]", benchmarks: "dict[str, Benchmark]", output: Path, root: Path, *, overwrite: bool
) -> "Results":
    """Score every row on every pair; scores of finished pairs are read from OUTPUT/pairs."""
    import re
    import shutil

    from ..models.weights import UntrainedWarning
    from .progress import progress_bar

    results = {}
    pairs = sum(len(benchmark.dataset) for benchmark in benchmarks.values())
    with progress_bar(pairs * len(rows), shown=True) as advance:
        for row in rows:
            folder = output / "pairs" / re.sub(r"[^\w.-]+", "_", row.label, flags=re.ASCII)
            if overwrite and folder.is_dir():
                shutil.rmtree(folder)
            with warnings_as_lines(UntrainedWarning):
                row.load()
            note = {"root": str(root.resolve())}
            results[row.label] = row.evaluate(benchmarks, save=folder, note=note, progress=lambda *_: advance())
    return results


def _print(results: "Results", *, geometry: bool, calibration: bool) -> None:
    from rich.console import Console

    from ..evaluation.reports import AREAS, terminal_tables

    console = Console()
    width = console.width if console.is_terminal else FILE_WIDTH
    for table in terminal_tables(results, width):
        Console(width=width).print(table)
    if geometry and not any(key in one.summary for of in results.values() for one in of.values() for key in AREAS):
        say("warning: no pair has a homography or calibrated cameras, --geometry has nothing to estimate")
    if calibration and not any("calibration" in one.summary for of in results.values() for one in of.values()):
        say("warning: no model gives a confidence, --calibration has nothing to measure")


def _print_json(results: "Results", files: list[Path]) -> None:
    """Print the metrics of each matcher on each data set, AEPE in pixels and all others as fractions."""
    import json

    from ..evaluation.calibration_report import overall_calibration

    matchers = {
        label: {
            name: {
                "protocol": found.protocol.name,
                "pairs": len(found.rows),
                "metrics": found.metrics,
                **{key: found.summary[key] for key in ("calibration",) if key in found.summary},
            }
            for name, found in sets.items()
        }
        for label, sets in results.items()
    }
    calibration = overall_calibration(results)
    summary = {"matchers": matchers, **({"calibration": calibration} if calibration else {})}
    echo(json.dumps(summary | {"files": [str(file) for file in files]}, indent=2))
