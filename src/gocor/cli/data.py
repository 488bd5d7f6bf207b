"""`gocor data`: look at training data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.errors import InputError
from .errors import warnings_as_lines

if TYPE_CHECKING:
    from ..data.synthetic import Preset as PresetSettings

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Photos = Annotated[list[Path], typer.Argument(help="Folders or zip files of photos.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Picture to write, .png or .jpg.")]
Preset = Annotated[
    str, typer.Option(help="How pairs are made: static, dynamic, flow, static-published or dynamic-published.")
]
Objects = Annotated[
    Path | None,
    typer.Option(help="Folder or zip file of cut-outs with transparency, or a COCO annotation file (.json)."),
]
Images = Annotated[Path | None, typer.Option(help="Folder or zip file of the photos that the COCO file annotates.")]
Count = Annotated[int, typer.Option(min=1, help="Number of pairs.")]
Size = Annotated[int, typer.Option(min=16, help="Side of the images, in pixels.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed; another one gives other pairs.")]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Look at the training pairs that `gocor train` makes from photos.

    Example: gocor data preview photos -o sheet.png
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def preview(
    photos: Photos,
    *,
    output: Output,
    preset: Preset = "static",
    objects: Objects = None,
    images: Images = None,
    count: Count = 8,
    size: Size = 256,
    seed: Seed = 0,
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
    _check(output, preset, chosen, objects)
    with warnings_as_lines(SkippedFilesWarning):
        # To read all photos would take long; a few times as many as are shown give enough variety.
        store = PhotoStore.open(photos, limit=max(64, 4 * count))
        cutouts = None if objects is None else ObjectStore.open(objects, images=images, limit=max(64, 8 * count))
    pairs = SyntheticPairs(store, preset=chosen, size=(size, size), seed=seed, objects=cutouts)
    write_image(output, draw_sheet(pairs.batch(0, count)))
    typer.echo(f"wrote {output}")


def _check(output: Path, preset: str, chosen: "PresetSettings", objects: Path | None) -> None:
    from ..data.io.images import WRITABLE

    if output.suffix.lower() not in WRITABLE:
        raise InputError(f"{output}: the suffix must be one of {', '.join(WRITABLE)}")
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"{output.parent} does not exist: create the folder first")
    if chosen.objects is not None and objects is None:
        raise InputError(f"the preset {preset} has moving objects: give them with --objects")
    if chosen.objects is None and objects is not None:
        raise InputError(f"the preset {preset} has no moving objects: leave out --objects")
