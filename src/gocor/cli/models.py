"""`gocor models`: the networks by name."""

import typer


def models() -> None:
    """List the networks and their weights.

    Prints names, numbers of parameters, and for trained weights that ship their licence and accuracy.

    Example: gocor models
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from ..models.registry import REGISTRY, list_models, sketch
    from ..models.zoo import shipped

    table = Table(box=SIMPLE, pad_edge=False)
    for header in ("name", "parameters", "weights", "licence", "PCK-5", "description"):
        right = header in ("parameters", "PCK-5")
        table.add_column(header, justify="right" if right else "left", no_wrap=header != "description")
    for name in list_models():
        count = sum(parameter.numel() for parameter in sketch(name).parameters())
        weights = ("none", "", "")
        if row := shipped().get(name):
            headline = "" if row.headline is None else f"{row.headline:.1f} %"
            weights = ("shipped", row.licence.partition(";")[0], headline)
        table.add_row(name, f"{count:,}", *weights, REGISTRY[name].description)
    Console(width=max(Console().width, 120)).print(table)
    typer.echo("PCK-5: points within 5 pixels of the truth on the viewpoint samples of docs/results.md, network alone")
