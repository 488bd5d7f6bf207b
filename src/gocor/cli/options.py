"""Options that several commands share."""

import tomllib
from pathlib import Path
from typing import Annotated

from typer import Option


def complete_model(incomplete: str) -> list[str]:
    """Names of the networks whose weights ship, for the shell's completion. Importing torch would take seconds."""
    folder = Path(__file__).parents[1] / "weights"
    names = {str(tomllib.loads(row.read_text(encoding="utf-8"))["model"]) for row in folder.glob("*.toml")}
    return sorted(name for name in names if name and name.startswith(incomplete))  # shared features have no name


Output = Annotated[Path, Option("--output", "-o", help="Folder to write to; it is created if need be.")]
Weights = Annotated[str, Option(help="`default`: those that ship; `none`: an untrained network; or a checkpoint.")]
Device = Annotated[str, Option(help="`cpu`, `cuda`, `cuda:1`, …; `auto` takes a GPU if there is one.")]
ItersLocal = Annotated[int | None, Option(min=0, help="Iterations of local GOCor layers; default: the network's own.")]
ItersGlobal = Annotated[int | None, Option(min=0, help="Iterations of the global GOCor layer; default: its own.")]
Updates = Annotated[int | None, Option(min=1, help="Updates of a recurrent network; default: its own.")]
MinSize = Annotated[
    int | None, Option(min=0, help="Enlarge smaller images to this longer side; 0: never; default: the network's own.")
]
MaxSize = Annotated[
    int, Option(min=0, help="Shrink larger images to this longer side; 0: never. The flow has full size anyway.")
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print warnings and errors only.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Compute finished pairs again.")]
PRESETS = "static, dynamic, flow, parallax, fast, static-published or dynamic-published pairs."
Json = Annotated[bool, Option("--json", help="Print the answer as JSON, for a program to read.")]
