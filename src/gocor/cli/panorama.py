"""`gocor panorama`: several photos in one picture."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from ..utils.defaults import MAX_SIZE, MODEL
from ..utils.errors import InputError
from ..utils.files import check_target
from .errors import say, warnings_as_lines
from .match import Align, Fast, Model
from .options import Device, MaxSize, Quiet, Weights

Photos = Annotated[list[Path], Argument(help="Two or more photos, each of which overlaps with the next.")]
File = Annotated[Path, Option("--output", "-o", help="Picture to write: .png or .jpg.")]
Side = Annotated[int, Option(min=16, help="Largest longer side of the panorama, in pixels.")]


def panorama(
    photos: Photos,
    *,
    output: File,
    side: Side = 8192,
    model: Model = MODEL,
    weights: Weights = "default",
    device: Device = "auto",
    max_size: MaxSize = MAX_SIZE,
    align: Align = None,
    fast: Fast = False,
    quiet: Quiet = False,
) -> None:
    """Join photos of a flat scene, or of a rotating camera.

    Writes OUTPUT: all photos, warped to the middle one by homographies, adjusted to equal exposure, and blended. Give
    the photos in the order in which they overlap, for example from left to right.

    Example: gocor panorama left.jpg middle.jpg right.jpg -o panorama.jpg
    """
    if len(photos) < 2:
        raise InputError(f"a panorama needs two photos or more, got {len(photos)}")
    if output.suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise InputError(f"{output}: the name of the file to write must end in .png, .jpg or .jpeg")
    check_target(output)
    from ..data.io import read_image, write_image
    from ..matching import match
    from ..models.weights import UntrainedWarning, load_model
    from ..reconstruction.panorama import chain, neighbour_homography, stitch

    pictures = [read_image(path) for path in photos]
    with warnings_as_lines(UntrainedWarning):
        network = load_model(model, None if weights == "none" else weights, device=device, fast=fast)
    homographies = []
    for (first, second), pair in zip(pairwise(photos), pairwise(pictures), strict=True):
        if not quiet:
            say(f"matching {first} and {second} …")
        result = match(*pair, network, max_size=max_size or None, align=align, fast=fast)
        homographies.append(neighbour_homography(result, (str(first), str(second))))
    picture = stitch(pictures, chain(homographies), max_size=side)
    write_image(output, picture)
    if not quiet:
        echo(f"wrote {output}, {picture.shape[1]}×{picture.shape[0]} pixels")
