"""`gocor match`: dense matches between images, saved as files."""

import os
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ..utils.defaults import MAX_SIZE, MODEL
from ..utils.errors import InputError
from .errors import describe, fail, warnings_as_lines
from .options import (
    Device,
    ItersGlobal,
    ItersLocal,
    MaxSize,
    MinSize,
    Overwrite,
    Precision,
    Quiet,
    SecondLook,
    Updates,
    Weights,
    complete_model,
)
from .stages import show_stages

if TYPE_CHECKING:
    from ..pipeline.job import Job
    from ..pipeline.pairs import Pair
    from ..pipeline.run import Place
    from .progress import Narrator

Reference = Annotated[Path, Argument(help="An image, a folder of images, or a CSV file that lists pairs.")]
Query = Annotated[Path | None, Argument(help="The image or folder to match it with. Leave it out with a CSV file.")]
Output = Annotated[
    str,
    Option(
        "--output",
        "-o",
        help="Folder to write to, which is created if it does not exist; or an HDF5 file (.h5); or an address such as "
        "s3://bucket/results.",
    ),
]
Model = Annotated[str, Option(autocompletion=complete_model, help="Name of a network; `gocor models` lists them.")]
Devices = Annotated[str | None, Option(help="Devices to share the pairs, separated by commas, such as cuda:0,cuda:1.")]
Ray = Annotated[
    str | None,
    Option(metavar="ADDRESS", help="Match on the Ray cluster at this address; `local` starts one on this machine."),
]
Workers = Annotated[
    int | None,
    Option(
        min=1, help="Number of workers on the Ray cluster.", show_default="one per GPU, or one per core without GPUs"
    ),
]
Align = Annotated[
    bool | None,
    Option(
        "--align/--no-align",
        help="Align images with a wide baseline before matching, and fit a homography to planar scenes.",
        show_default="if the network supports it",
    ),
]
Batch = Annotated[int, Option(min=1, help="Number of pairs that the network matches at once.")]
Formats = Annotated[
    str,
    Option(help="Formats of the flow file, separated by commas: flo, kitti, npz, pfm; `none`: write no flow."),
]
Pictures = Annotated[
    bool | None,
    Option("--pictures/--no-pictures", help="Draw pictures of the results.", show_default="for a single pair only"),
]
MinConfidence = Annotated[float, Option(min=0, max=1, help="Lowest confidence of a match in matches.csv.")]
MaxPoints = Annotated[int, Option(min=1, help="Largest number of matches in matches.csv.")]
Fast = Annotated[
    bool,
    Option(
        "--fast",
        help="Trade accuracy for speed: small images are not enlarged, a recurrent network makes half the updates, and "
        "convolutions run in bfloat16 where the device is faster with it. A GPU also records a CUDA graph for each "
        "image size.",
    ),
]
Json = Annotated[bool, Option("--json", help="Print one line of JSON per pair.")]


def match(
    reference: Reference,
    query: Query = None,
    *,
    output: Output,
    model: Model = MODEL,
    weights: Weights = "default",
    device: Device = "auto",
    devices: Devices = None,
    ray: Ray = None,
    workers: Workers = None,
    iters_local: ItersLocal = None,
    iters_global: ItersGlobal = None,
    updates: Updates = None,
    min_size: MinSize = None,
    max_size: MaxSize = MAX_SIZE,
    align: Align = None,
    batch: Batch = 4,
    formats: Formats = "flo",
    pictures: Pictures = None,
    min_confidence: MinConfidence = 0.5,
    max_points: MaxPoints = 5000,
    precision: Precision = None,
    second_look: SecondLook = None,
    fast: Fast = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Match two images, two folders, or the pairs of a CSV file.

    Writes the flow (flow.flo), the most confident matches (matches.csv) and done.json, which marks the pair as
    finished. A single pair is written to OUTPUT, several to OUTPUT/NAME. For a single pair, pictures are written too:
    the flow, the matches, the confidence, the query warped to the reference, and an overlay of both. In the overlay the
    reference is red and the warped query cyan; grey means that both agree.

    Images in two folders are paired by their file names. A CSV file has the columns reference, query and optionally
    name; its paths are relative to the file. An interrupted command can be run again: finished pairs are skipped.

    Example: gocor match left.jpg right.jpg -o matches
    """
    from ..pipeline.pairs import find_pairs

    pairs = find_pairs(reference, query)
    one = _one(reference, query)
    with show_stages(shown=one and not quiet) as show:
        show(f"loading {model}")
        from ..matching.options import MatchOptions  # imports torch, which takes seconds, after the paths were checked
        from ..pipeline.job import Job

        job = Job(
            model=model,
            weights=None if weights == "none" else weights,
            matching=MatchOptions(
                iters_local=iters_local,
                iters_global=iters_global,
                updates=updates,
                min_size=min_size,
                max_size=max_size or None,
                align=align,
                precision=precision,
                second_look=second_look,
                fast=fast,
            ),
            batch=batch,
            formats=[] if formats == "none" else [name.strip() for name in formats.split(",") if name.strip()],
            max_points=max_points,
            min_confidence=min_confidence,
            pictures=one if pictures is None else pictures,
            fast=fast,
        )
        place = _place(device, devices, ray, workers)
        narrator = _run(pairs, job, place, output, overwrite=overwrite, json=json, quiet=quiet)
    narrator.explain_pictures(shown=one and job.pictures)


def _run(
    pairs: Collection["Pair"], job: "Job", place: "Place", output: str, *, overwrite: bool, json: bool, quiet: bool
) -> "Narrator":
    """Match the pairs that have no result yet, and print what becomes of each."""
    from ..models.weights import UntrainedWarning
    from ..pipeline.run import Some, find_unfinished, run_job
    from ..pipeline.stores import open_store
    from .progress import Narrator

    with closing(open_store(output)) as store:
        store.check(job)
        narrator = Narrator(store, len(pairs), json=json, quiet=quiet)
        todo = Some.all(pairs) if overwrite else find_unfinished(pairs, job, store)
        narrator.skip(todo)
        if len(todo):
            with warnings_as_lines(UntrainedWarning):
                reports = run_job(todo, job, store, place, count=len(todo))
            with narrator.progress(len(todo)):
                for report in reports:
                    narrator.tell(report)
    narrator.summarise()
    if narrator.only_error is not None:
        fail(describe(narrator.only_error), 1)
    if narrator.failed:
        fail(f"{narrator.failed} of {narrator.total} pairs failed", 1)
    return narrator


def _one(reference: Path, query: Path | None) -> bool:
    """Whether two images are given, rather than folders or a list."""
    return query is not None and not reference.is_dir()


def _place(device: str, devices: str | None, ray: str | None, workers: int | None) -> "Place":
    from ..models.weights import choose_device
    from ..pipeline.run import Place

    if devices is not None and (device != "auto" or ray is not None):
        raise InputError("--devices cannot be combined with --device or --ray")
    if workers is not None and ray is None:
        raise InputError("--workers is the number of workers on a Ray cluster: it needs --ray")
    names = [device] if devices is None else [name.strip() for name in devices.split(",") if name.strip()]
    if not names:
        raise InputError(f"--devices must name devices, such as cuda:0,cuda:1, got {devices!r}")
    if ray is None:
        names = [str(choose_device(name)) for name in names]
    else:  # Ray, which reads this when it is imported, would print on stdout that a worker was lost
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    return Place(devices=names, ray=ray, workers=workers)
