"""`gocor match`: dense matches between images, saved as files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from ..utils.defaults import MAX_SIZE, MODEL
from ..utils.files import check_folder
from .errors import describe, fail, say, warnings_as_lines
from .options import Device, ItersGlobal, ItersLocal, MaxSize, MinSize, Output, Overwrite, Weights

if TYPE_CHECKING:
    from .batch import Options
    from .pairs import Pair

Reference = Annotated[Path, Argument(help="An image, a folder of images, or a CSV file that lists pairs.")]
Query = Annotated[Path | None, Argument(help="The image or folder to match it with; left out with a CSV file.")]
Model = Annotated[str, Option(help="Name of a network; `gocor models` lists them.")]
Align = Annotated[
    bool | None,
    Option(
        "--align/--no-align",
        help="Align wide baselines by a homography first, and fit one to the flow of planar scenes. [default: if the "
        "network supports it]",
    ),
]
Batch = Annotated[int, Option(min=1, help="Number of pairs to match at once.")]
Formats = Annotated[str, Option(help="Formats of the flow file, separated by commas: flo, kitti, npz, pfm.")]
MinConfidence = Annotated[float, Option(min=0, max=1, help="Lowest confidence of the points in matches.csv.")]
MaxPoints = Annotated[int, Option(min=1, help="Largest number of points in matches.csv.")]
Fast = Annotated[bool, Option("--fast", help="For many pairs on a GPU: bfloat16, and a CUDA graph per image size.")]


def match(
    reference: Reference,
    query: Query = None,
    *,
    output: Output,
    model: Model = MODEL,
    weights: Weights = "default",
    device: Device = "auto",
    iters_local: ItersLocal = None,
    iters_global: ItersGlobal = None,
    min_size: MinSize = None,
    max_size: MaxSize = MAX_SIZE,
    align: Align = None,
    batch: Batch = 4,
    formats: Formats = "flo",
    min_confidence: MinConfidence = 0.5,
    max_points: MaxPoints = 5000,
    fast: Fast = False,
    overwrite: Overwrite = False,
) -> None:
    """Match two images, two folders, or the pairs of a CSV file.

    Writes for each pair: the flow (flow.flo), the most confident matches (matches.csv), pictures of the flow, the
    matches and the confidence, the query warped to the reference, an overlay of both, and done.json. One pair is
    written to OUTPUT, several to OUTPUT/NAME. Images in two folders are paired by their names. A CSV file has the
    columns reference, query and optionally name; its paths are relative to the file. Finished pairs are skipped, so an
    interrupted command can be run again.

    Example: gocor match left.jpg right.jpg -o matches
    """
    from .pairs import find_pairs

    check_folder(output)
    pairs = find_pairs(reference, query, output)
    from ..matching.options import MatchOptions  # imports torch, which takes seconds, after the paths were checked
    from .batch import Options

    options = Options(
        model=model,
        weights=None if weights == "none" else weights,
        device=device,
        matching=MatchOptions(
            iters_local=iters_local,
            iters_global=iters_global,
            min_size=min_size,
            max_size=max_size or None,
            align=align,
        ),
        batch=batch,
        formats=[name.strip() for name in formats.split(",") if name.strip()],
        max_points=max_points,
        min_confidence=min_confidence,
    )
    unfinished = pairs if overwrite else _unfinished(pairs, options)
    if unfinished:
        _match(unfinished, options, fast=fast)


def _unfinished(pairs: "list[Pair]", options: "Options") -> "list[Pair]":
    """The pairs without a result of these options; says how many are left out."""
    from .batch import is_finished

    unfinished = [pair for pair in pairs if not is_finished(pair, options)]
    done = len(pairs) - len(unfinished)
    if done:
        which = f"{done} of {len(pairs)} pairs are" if len(pairs) > 1 else f"{pairs[0].folder} is"
        echo(f"{which} finished already; --overwrite matches again")
    return unfinished


def _match(pairs: "list[Pair]", options: "Options", *, fast: bool) -> None:
    """Match and save pairs, and report on each; exits with an error if any failed."""
    from ..matching.files import check_formats
    from ..models.weights import UntrainedWarning, load_model
    from .batch import match_pairs, progress_bar

    check_formats(options.formats)
    with warnings_as_lines(UntrainedWarning):
        network = load_model(options.model, options.weights, device=options.device, fast=fast)
    failed = 0
    with progress_bar(len(pairs), shown=len(pairs) > 1) as advance:
        for pair, outcome in match_pairs(pairs, network, options):
            if isinstance(outcome, Exception):
                if not pair.name:
                    fail(describe(outcome), 1)
                say(f"{pair.name}: {describe(outcome)}")
                failed += 1
            else:
                # `print`, not `echo`: the progress bar moves down for lines of `print` only.
                print(f"{pair.folder}: mean confidence {outcome.confidence:.2f}", flush=True)
                for file in outcome.files if not pair.name else ():
                    print(f"wrote {file}")
            advance()
    if failed:
        fail(f"{failed} of {len(pairs)} pairs failed", 1)
