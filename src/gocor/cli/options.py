"""Options that several commands share."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from typer import Option


def complete_model(incomplete: str) -> list[str]:
    """Names of the networks that have trained weights, for the shell's completion. It does not import torch."""
    folder = Path(__file__).parents[1] / "weights"
    names = {str(tomllib.loads(row.read_text(encoding="utf-8"))["model"]) for row in folder.glob("*.toml")}
    return sorted(name for name in names if name and name.startswith(incomplete))  # shared features have no name


Output = Annotated[Path, Option("--output", "-o", help="Folder to write to; it is created if it does not exist.")]
Weights = Annotated[
    str, Option(help="A checkpoint file; `default`: the weights of the package; `none`: an untrained network.")
]
Device = Annotated[str, Option(help="Device to compute on: `cpu`, `cuda`, `cuda:1`, …; `auto`: a GPU if there is one.")]
OWN = "the network's own"
ItersLocal = Annotated[int | None, Option(min=0, help="Iterations of the local GOCor layers.", show_default=OWN)]
ItersGlobal = Annotated[int | None, Option(min=0, help="Iterations of the global GOCor layer.", show_default=OWN)]
Updates = Annotated[
    int | None, Option(min=1, help="Largest number of updates of a recurrent network.", show_default=OWN)
]
MinSize = Annotated[
    int | None,
    Option(
        min=0,
        help="Enlarge smaller images until their longer side has this many pixels; 0: never enlarge.",
        show_default=OWN,
    ),
]
MaxSize = Annotated[
    int,
    Option(
        min=0,
        help="Shrink larger images until their longer side has this many pixels, to save memory; 0: never shrink. The "
        "flow is returned at the full size.",
    ),
]
Precision = Annotated[
    Literal["bf16", "float32"] | None,
    Option(
        help="Precision of convolutions.",
        show_default="bf16 on a CPU with instructions for it if the network is as accurate, otherwise float32",
    ),
]
SecondLook = Annotated[
    bool | None,
    Option(
        "--second-look/--no-second-look",
        help="Match pairs that the network is unsure of again: from images of half the size, and part by part.",
        show_default="if the network can, unless --fast",
    ),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print warnings and errors only.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Compute finished pairs again, instead of skipping them.")]
PRESETS = "Kind of pairs: static, dynamic, flow, parallax, fast, static-published or dynamic-published."
Json = Annotated[bool, Option("--json", help="Print JSON, for other programs.")]
