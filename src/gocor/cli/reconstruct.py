"""`gocor reconstruct`: a COLMAP model of a folder of photos."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from ..utils.defaults import MAX_SIZE, MODEL
from ..utils.errors import InputError
from .errors import describe, say, warnings_as_lines
from .match import Align, Batch, Fast, Model
from .options import Device, Json, MaxSize, Output, Overwrite, Quiet, Weights
from .progress import Ticker, progress_bar

if TYPE_CHECKING:
    from ..pipeline.pairs import Pair
    from ..reconstruction.report import Report
    from ..reconstruction.run import Reconstruction

Photos = Annotated[Path, Argument(help="Folder of three photos or more.")]
Pairs = Annotated[
    str | None,
    Option(
        help="Pairs of photos to match: exhaustive (all), sequential (each photo with the next ones by name), or "
        "similar (each photo with the most similar ones).",
        show_default="exhaustive up to 40 photos, otherwise similar",
    ),
]
Neighbours = Annotated[
    int, Option(min=1, help="For sequential and similar pairs: number of photos to match each photo with.")
]
MaxKeypoints = Annotated[
    int, Option(min=16, help="Largest number of keypoints of a photo that are searched in other photos.")
]
MinConfidence = Annotated[float, Option(min=0, max=1, help="Lowest confidence of a match.")]
Camera = Annotated[str, Option(help="Camera model: SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, RADIAL or OPENCV.")]
Focal = Annotated[
    float | None,
    Option(
        min=0,
        help="Initial focal length in pixels, which COLMAP refines.",
        show_default="from EXIF, or 1.2 times the longer side",
    ),
]
OwnCameras = Annotated[
    bool,
    Option(
        "--own-cameras",
        help="Give each photo its own camera. Otherwise photos of the same size and focal length share one.",
    ),
]
DatabaseOnly = Annotated[bool, Option("--database-only", help="Stop after the database of verified matches.")]
H5 = Annotated[bool, Option("--h5", help="Also write features.h5 and matches.h5 for hloc.")]


def reconstruct(
    photos: Photos,
    *,
    output: Output,
    pairs: Pairs = None,
    neighbours: Neighbours = 10,
    model: Model = MODEL,
    weights: Weights = "default",
    device: Device = "auto",
    max_size: MaxSize = MAX_SIZE,
    align: Align = None,
    fast: Fast = False,
    batch: Batch = 4,
    max_keypoints: MaxKeypoints = 1000,
    min_confidence: MinConfidence = 0.5,
    camera: Camera = "SIMPLE_RADIAL",
    focal: Focal = None,
    own_cameras: OwnCameras = False,
    database_only: DatabaseOnly = False,
    h5: H5 = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reconstruct cameras and 3-D points from photos, with COLMAP.

    Writes to OUTPUT: database.db (keypoints and verified matches), sparse/0 (the largest model, for COLMAP), sparse/1,
    … (models of photos that are not connected with it), points.ply and report.json. Prints the numbers of registered
    photos and of points, the mean reprojection error in pixels and the mean track length. Matches are kept in
    OUTPUT/matches, so an interrupted command can be run again. Needs pycolmap: pip install 'gocor[sfm]'.

    Example: gocor reconstruct photos -o model --fast
    """
    from ..matching.options import MatchOptions
    from ..pipeline.job import Job
    from ..reconstruction.colmap import CameraOptions
    from ..reconstruction.run import Reconstruction

    cameras = CameraOptions(model=camera, focal=focal, shared=not own_cameras)
    job = Job(
        model=model,
        weights=None if weights == "none" else weights,
        matching=MatchOptions(max_size=max_size or None, align=align, fast=fast),
        batch=batch,
        formats=(),
        min_confidence=min_confidence,
        fast=fast,
    )
    work = Reconstruction(photos, output, job, max_keypoints)
    chosen = _pairs(work, work.pairing(pairs), neighbours, device, quiet=quiet)
    _match(work, chosen, device, overwrite=overwrite, quiet=quiet)
    if not quiet:
        say("verifying the matches …" if database_only else "verifying the matches and mapping …")
    report = work.finish(work.graph(), cameras, database_only=database_only, h5=h5)
    if json:
        echo(report.to_json())
    elif not quiet:
        _print(report, output)


def _pairs(work: "Reconstruction", pairing: str, neighbours: int, device: str, *, quiet: bool) -> Sequence["Pair"]:
    from ..models.weights import choose_device
    from ..pipeline.worker import load_network

    network = load_network(work.job, choose_device(device), quiet=True) if pairing == "similar" else None
    pairs = work.choose_pairs(pairing, neighbours, network)
    if not quiet:
        say(f"{len(work.photos)} photos, {len(pairs)} {pairing} pairs")
    return pairs


def _match(work: "Reconstruction", pairs: Sequence["Pair"], device: str, *, overwrite: bool, quiet: bool) -> None:
    """Match the pairs that an earlier run did not, with a progress bar. A pair that fails is left out."""
    from ..models.weights import UntrainedWarning, choose_device

    todo = work.unmatched(pairs, overwrite=overwrite)
    if len(todo) < len(pairs) and not quiet:
        say(f"{len(pairs) - len(todo)} of {len(pairs)} pairs are matched already; use --overwrite to match again")
    if not len(todo):
        return
    failed = 0
    with work.stages.measure("match"), progress_bar(len(todo), shown=not quiet) as advance:
        ticker = Ticker(len(todo), quiet=quiet)
        with warnings_as_lines(UntrainedWarning):
            reports = work.match(todo, str(choose_device(device)))
        for pair, result in reports:
            if isinstance(result, Exception):
                failed += 1
                say(f"{pair.name}: {describe(result)}")
            advance()
            ticker.tick()
    if failed == len(pairs):
        raise InputError(f"all {failed} pairs failed")


def _print(report: "Report", output: Path) -> None:
    rows = report.rows()
    width, right = max(len(name) for name, _ in rows), max(len(value) for _, value in rows)
    for name, value in rows:
        echo(f"{name:<{width}}  {value:>{right}}")
    if report.unregistered:
        shown = ", ".join(report.unregistered[:5]) + (", …" if len(report.unregistered) > 5 else "")
        echo(f"not registered: {shown}")
    echo(f"wrote {output}")
