"""`gocor models`: the networks by name."""

from typing import Any

import typer

from .options import Json


def models(*, json: Json = False) -> None:
    """List the networks and their weights.

    Prints the name, number of parameters and description of each network. For networks with trained weights in the
    package it also prints their licence and accuracy. With --json it prints all facts, such as file, SHA-256, training
    data and scores.

    Example: gocor models
    """
    if json:
        _print_json()
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from ..models.registry import REGISTRY, list_models
    from ..models.zoo import shipped

    table = Table(box=SIMPLE, pad_edge=False)
    for header in ("name", "parameters", "weights", "licence", "PCK-5", "description"):
        right = header in ("parameters", "PCK-5")
        table.add_column(header, justify="right" if right else "left", no_wrap=header != "description")
    for name in list_models():
        weights = ("none", "", "")
        if row := shipped().get(name):
            headline = "" if row.headline is None else f"{row.headline:.1f} %"
            weights = ("shipped", row.licence.partition(";")[0], headline)
        table.add_row(name, f"{_parameters(name):,}", *weights, REGISTRY[name].description)
    Console(width=max(Console().width, 120)).print(table)
    typer.echo(
        "PCK-5: share of points within 5 pixels of the truth, network alone, on 16 pairs with changes of viewpoint"
    )


def _parameters(name: str) -> int:
    from ..models.registry import sketch

    return sum(parameter.numel() for parameter in sketch(name).parameters())


def _print_json() -> None:
    import json
    from dataclasses import asdict

    from ..models.registry import REGISTRY, list_models
    from ..models.zoo import SHIPPED, shipped

    found: list[dict[str, Any]] = []
    for name in list_models():
        row = shipped().get(name)
        weights = None if row is None else {"file": str(SHIPPED / f"{name}.safetensors"), **asdict(row)}
        about = {"name": name, "description": REGISTRY[name].description, "parameters": _parameters(name)}
        found.append({**about, "weights": weights})
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
