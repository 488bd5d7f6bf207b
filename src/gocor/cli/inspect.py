"""`gocor inspect`: what the GOCor modules of a network have learnt."""

from pathlib import Path
from typing import Annotated

import typer

from .errors import warnings_as_lines


def inspect(
    model: Annotated[str, typer.Argument(help="One of `gocor models`, with GOCor.")],
    *,
    weights: Annotated[
        str, typer.Option(help="`default` for those that ship, `none` for start values, or a checkpoint.")
    ] = "default",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path("gocor-inspect"),
) -> None:
    """Curves and heat maps of y′, v⁺ and m, learnt and at the start, of every GOCor module, and its scalars."""
    import json

    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from ..evaluation.inspect import describe_layer, draw_layer, inspect_network
    from ..models.weights import load_model
    from ..utils.files import check_folder, write_bytes_atomically

    check_folder(output)
    with warnings_as_lines():
        network = load_model(model, None if weights == "none" else weights, device="cpu")
    layers = inspect_network(network)
    content = {"model": model, "weights": weights, "layers": [describe_layer(layer) for layer in layers]}
    files = {f"{layer.name}.png": draw_layer(layer) for layer in layers}
    files["layers.json"] = (json.dumps(content, indent=1) + "\n").encode()
    output.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes_atomically(output / name, data)
    table = Table(box=SIMPLE, pad_edge=False)
    for header in ("layer", "kind", "λ", "step factor", "y′(0)", "v⁺(0)", "m(0)", "m(far)"):
        table.add_column(header, justify="left" if header in ("layer", "kind") else "right", no_wrap=True)
    for layer in layers:
        figures = [layer.scalars["regularization"], layer.scalars["step_factor"]]
        figures += [float(layer.curves[name][0]) for name in ("target", "weight", "mask")]
        figures += [float(layer.curves["mask"][-1])]
        table.add_row(layer.name, layer.kind, *(f"{value:.4g}" for value in figures))
    console = Console()
    Console(width=max(console.width, 100)).print(table)
    for name in files:
        typer.echo(f"wrote {output / name}")
