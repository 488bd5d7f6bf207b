"""`gocor convert`: published checkpoints as files of ours."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from ..utils.errors import InputError
from ..utils.files import check_target
from .errors import warnings_as_lines


def convert(
    source: Annotated[Path, Argument(metavar="IN", help="A published checkpoint (.pth).")],
    target: Annotated[Path, Argument(metavar="OUT", help="File to write (.safetensors).")],
    model: Annotated[
        str | None,
        Option(
            help="Name of the network; `gocor models` lists them.",
            show_default="recognised by the parameter names in IN",
        ),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace OUT if it exists.")] = False,
) -> None:
    """Convert a published checkpoint to a safetensors file.

    Writes OUT, which `gocor match --weights OUT` and `gocor eval --weights OUT` read.

    Example: gocor convert published.pth ours.safetensors
    """
    if target.suffix != ".safetensors":
        raise InputError(f"{target}: the name of the file to write must end in .safetensors")
    if target.exists() and not overwrite:
        raise InputError(f"{target} exists already: --overwrite replaces it")
    check_target(target)
    from ..models.weights import UntrainedWarning, convert

    with warnings_as_lines(UntrainedWarning):
        name = convert(source, target, model)
    echo(f"{source} holds weights of {name}")
    echo(f"wrote {target}")
