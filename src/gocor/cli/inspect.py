"""`gocor inspect`: what the GOCor modules of a network have learnt."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, echo

from ..utils.files import check_folder, write_files
from .errors import warnings_as_lines
from .options import Output, Weights, complete_model

if TYPE_CHECKING:
    from ..evaluation.inspect import Layer


def inspect(
    model: Annotated[
        str, Argument(autocompletion=complete_model, help="A network with GOCor; `gocor models` lists them.")
    ],
    *,
    weights: Weights = "default",
    output: Output = Path("gocor-inspect"),
) -> None:
    """Draw what the GOCor modules of a network have learnt.

    Writes a picture LAYER.png of each GOCor module with the target y′, the weight v⁺ and the mask m, before and after
    training, and layers.json with all values. Prints the learnt scalars.

    Example: gocor inspect glunet-gocor -o gocor-inspect
    """
    import json

    from ..evaluation.inspect import describe_layer, draw_layer, inspect_network
    from ..models.weights import UntrainedWarning, load_model

    check_folder(output)
    with warnings_as_lines(UntrainedWarning):
        network = load_model(model, None if weights == "none" else weights, device="cpu")
    layers = inspect_network(network)
    content = {"model": model, "weights": weights, "layers": [describe_layer(layer) for layer in layers]}
    files = {f"{layer.name}.png": draw_layer(layer) for layer in layers}
    files["layers.json"] = (json.dumps(content, indent=1) + "\n").encode()
    written = write_files(output, files)
    _print(layers)
    for file in written:
        echo(f"wrote {file}")


def _print(layers: "list[Layer]") -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for header in ("layer", "kind", "λ", "step factor", "y′(0)", "v⁺(0)", "m(0)", "m(far)"):
        table.add_column(header, justify="left" if header in ("layer", "kind") else "right", no_wrap=True)
    for layer in layers:
        figures = [layer.scalars["regularization"], layer.scalars["step_factor"]]
        figures += [float(layer.curves[name][0]) for name in ("target", "weight", "mask")]
        figures += [float(layer.curves["mask"][-1])]
        table.add_row(layer.name, layer.kind, *(f"{value:.4g}" for value in figures))
    console = Console(width=1000)
    width = Measurement.get(console, console.options, table).maximum
    Console(width=max(Console().width, width)).print(table)  # a narrow terminal breaks lines, but cuts no number off
