"""`gocor data`: training data to look at."""

from pathlib import Path
from typing import Annotated

import typer

from ..utils.errors import InputError
from .errors import say

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Training data to look at."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def preview(
    photos: Annotated[list[Path], typer.Argument(help="Folders or zip files of photos.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture to write, PNG or JPEG.")],
    preset: Annotated[
        str, typer.Option(help="static, dynamic, flow, static-published or dynamic-published.")
    ] = "static",
    objects: Annotated[
        Path | None, typer.Option(help="Folder or zip of cut-outs with transparency, or COCO annotations (.json).")
    ] = None,
    images: Annotated[Path | None, typer.Option(help="Photos of the COCO annotations.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Pairs.")] = 8,
    size: Annotated[int, typer.Option(min=16, help="Side of the images.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Other pairs.")] = 0,
) -> None:
    """Draw synthetic pairs: reference, query, query warped back, flow, and what is valid and occluded."""
    import warnings

    from ..data.io import write_image
    from ..data.io.images import WRITABLE
    from ..data.synthetic import ObjectStore, PhotoStore, SkippedFilesWarning, SyntheticPairs, get_preset
    from ..data.synthetic.preview import draw_sheet

    chosen = get_preset(preset)
    if output.suffix.lower() not in WRITABLE:
        raise InputError(f"{output}: the suffix must be one of {', '.join(WRITABLE)}")
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"{output.parent} does not exist: create the folder first")
    if chosen.objects is not None and objects is None:
        raise InputError(f"the preset {preset} has moving objects: give them with --objects")
    if chosen.objects is None and objects is not None:
        raise InputError(f"the preset {preset} has no moving objects: leave --objects away")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SkippedFilesWarning)
        # A few times as many photos and objects as are shown are choice enough.
        store = PhotoStore.open(photos, limit=max(64, 4 * count))
        cutouts = None if objects is None else ObjectStore.open(objects, images=images, limit=max(64, 8 * count))
    for warning in caught:
        say(f"warning: {warning.message}")
    pairs = SyntheticPairs(store, preset=chosen, size=(size, size), seed=seed, objects=cutouts)
    write_image(output, draw_sheet(pairs.batch(0, count)))
    typer.echo(f"wrote {output}")
