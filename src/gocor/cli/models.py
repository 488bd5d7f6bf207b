"""`gocor models`: the networks by name."""


def models() -> None:
    """List the networks and their weights.

    Prints their names, their numbers of parameters, and whether trained weights ship.

    Example: gocor models
    """
    import torch
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from ..models.registry import REGISTRY, create_model, list_models
    from ..models.weights import SHIPPED

    table = Table(box=SIMPLE)
    for header in ("name", "parameters", "weights", "description"):
        table.add_column(header, justify="right" if header == "parameters" else "left", no_wrap=header != "description")
    for name in list_models():
        with torch.device("meta"):  # counting parameters needs no memory for them
            count = sum(parameter.numel() for parameter in create_model(name).parameters())
        shipped = (SHIPPED / f"{name}.safetensors").exists()
        table.add_row(name, f"{count:,}", "shipped" if shipped else "none", REGISTRY[name].description)
    Console().print(table)
