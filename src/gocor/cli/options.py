"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to write to; it is created if need be.")]
Weights = Annotated[
    str,
    typer.Option(help="`default`: the weights that ship; `none`: an untrained network; or the path of a checkpoint."),
]
Device = Annotated[str, typer.Option(help="`cpu`, `cuda`, `cuda:1`, …; `auto` takes a GPU if there is one.")]
ItersLocal = Annotated[
    int | None, typer.Option(min=0, help="Iterations of the local GOCor layers; by default the network's own number.")
]
ItersGlobal = Annotated[
    int | None, typer.Option(min=0, help="Iterations of the global GOCor layer; by default the network's own number.")
]
MinSize = Annotated[
    int | None,
    typer.Option(
        min=0, help="Enlarge smaller images to this longer side; 0 enlarges none; by default the network decides."
    ),
]
MaxSize = Annotated[
    int,
    typer.Option(
        min=0,
        help="Shrink larger images to this longer side before matching; 0 shrinks none. The flow always has the "
        "reference's resolution.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Compute finished pairs again.")]
