"""`gocor export`: networks as ONNX or `.pt2` files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from ..utils.errors import InputError
from ..utils.files import check_target
from .errors import warnings_as_lines
from .options import Json, Weights, complete_model

if TYPE_CHECKING:
    from ..export import Exported

Model = Annotated[str, Argument(autocompletion=complete_model, help="Name of a network; `gocor models` lists them.")]
File = Annotated[Path, Option("--output", "-o", help="File to write; its suffix, .onnx or .pt2, is the format.")]
Size = Annotated[
    int | None,
    Option(
        min=0,
        help="Longer side, in pixels, that the network resizes images to; 0: the images' own size.",
        show_default="the network's own",
    ),
]
Half = Annotated[bool, Option("--half", help="Compute convolutions in float16. An ONNX file is about half as large.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace the file if it exists.")]


def export(
    model: Model,
    *,
    output: File,
    weights: Weights = "default",
    size: Size = None,
    half: Half = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Export a network for onnxruntime and other programs.

    Writes OUTPUT, a graph that takes two images of any size and returns the flow at the size of the reference. It
    holds no custom operators. The file is first run on three pairs of images and compared with the network. Prints the
    differences; if they are too large, nothing is written.

    Example: gocor export glunet-gocor -o glunet.onnx --half
    """
    if output.suffix not in (".onnx", ".pt2"):
        raise InputError(f"{output}: the name of the file to write must end in .onnx or .pt2")
    if output.exists() and not overwrite:
        raise InputError(f"{output} exists already: --overwrite replaces it")
    check_target(output)
    from ..export import export_model
    from ..models.weights import UntrainedWarning, load_model

    source = None if weights == "none" else weights
    with warnings_as_lines(UntrainedWarning):
        network = load_model(model, source, device="cpu")
    made = export_model(network, output, size=size, half=half, weights=source)
    if json:
        _print_json(made)
        return
    found = made.errors
    line = f"differs from the network by {found.flow_mean:.2g} pixels on average, {found.flow_max:.2g} at most"
    if network.learns_confidence:
        line += f"; its probabilities by {found.probability_mean:.2g} on average"
    echo(line)
    echo(f"wrote {output}, {made.bytes / 1e6:.1f} MB")


def _print_json(made: "Exported") -> None:
    import json
    from dataclasses import asdict

    facts = {"file": str(made.path), "bytes": made.bytes, "differences": asdict(made.errors)}
    echo(json.dumps({**facts, "metadata": made.metadata}, indent=2, ensure_ascii=False))
