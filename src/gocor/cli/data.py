"""`gocor data`: look at training data."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option, Typer, echo

from ..utils.errors import InputError
from ..utils.files import check_target
from .errors import warnings_as_lines
from .options import PRESETS

app = Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def root(context: Context) -> None:
    """Look at training pairs that `gocor train` makes from photos.

    Example: gocor data preview photos -o sheet.png
    """
    if context.invoked_subcommand is None:
        echo(context.get_help())


@app.command()
def preview(
    photos: Annotated[list[Path], Argument(help="Folders or zip files of photos.")],
    *,
    output: Annotated[Path, Option("--output", "-o", help="Picture to write, .png or .jpg.")],
    preset: Annotated[str, Option(help=PRESETS)] = "static",
    objects: Annotated[
        Path | None,
        Option(help="Moving objects: a folder or zip file of images with transparency, or a COCO file (.json)."),
    ] = None,
    images: Annotated[
        Path | None, Option(help="Folder or zip file of the photos that the COCO file annotates.")
    ] = None,
    count: Annotated[int, Option(min=1, help="Number of pairs to draw.")] = 8,
    size: Annotated[int, Option(min=16, help="Side of the square images, in pixels.")] = 256,
    seed: Annotated[int, Option(min=0, help="Random seed; another seed gives other pairs.")] = 0,
) -> None:
    """Draw synthetic training pairs as one picture.

    Writes OUTPUT with one row per pair: reference, query, query warped by the flow, flow, and a picture of the masks
    in which valid pixels are green and occluded pixels are orange.

    Example: gocor data preview photos -o sheet.png
    """
    from ..data.io import write_image
    from ..data.synthetic import ObjectStore, PhotoStore, SkippedFilesWarning, SyntheticPairs, get_preset
    from ..data.synthetic.preview import draw_sheet

    chosen = get_preset(preset)
    _check(output, preset, chosen.objects is not None, objects)
    with warnings_as_lines(SkippedFilesWarning):
        # To read all photos would take long; a few times as many as are shown give enough variety.
        store = PhotoStore.open(photos, limit=max(64, 4 * count))
        cutouts = None if objects is None else ObjectStore.open(objects, images=images, limit=max(64, 8 * count))
    pairs = SyntheticPairs(store, preset=chosen, size=(size, size), seed=seed, objects=cutouts)
    write_image(output, draw_sheet(pairs.batch(0, count)))
    echo(f"wrote {output}")


def _check(output: Path, preset: str, moving: bool, objects: Path | None) -> None:
    from ..data.io.images import WRITABLE

    if output.suffix.lower() not in WRITABLE:
        raise InputError(f"{output}: the suffix must be one of {', '.join(WRITABLE)}")
    check_target(output)
    if moving and objects is None:
        raise InputError(f"the preset {preset} has moving objects: give them with --objects")
    if not moving and objects is not None:
        raise InputError(f"the preset {preset} has no moving objects: leave out --objects")
