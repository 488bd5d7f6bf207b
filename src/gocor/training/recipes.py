"""Recipes: options of training runs that ship as TOML files, such as the paper's schedules."""

from pathlib import Path

from ..utils.errors import InputError
from ..utils.options import nearest

FOLDER = Path(__file__).parents[1] / "recipes"


def list_recipes() -> list[str]:
    """Names of the recipes that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def recipe_file(name: str) -> Path:
    """The TOML file of a recipe."""
    if name not in list_recipes():
        raise InputError(f"no recipe is named {name!r}; {nearest(name, list_recipes())}")
    return FOLDER / f"{name}.toml"
