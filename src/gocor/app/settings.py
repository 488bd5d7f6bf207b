"""The settings of the page: their bounds, their start values, and the query string that restores them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from urllib.parse import urlencode

import torch

from ..matching import MatchOptions
from ..models.registry import REGISTRY, sketch
from ..modules.gocor import GOCor
from ..modules.local_gocor import LocalGOCor
from ..utils.defaults import MAX_SIZE
from ..utils.errors import InputError

MAX_ITERS, MAX_UPDATES = 10, 32
SMALLEST_SIZE, CPU_SIZE = 128, 768  # pixels of the longer side
SIZE_STEP = 64
MAX_DIGITS = 9  # of a number in a link


@dataclass(frozen=True)
class Facts:
    """What the page needs to know about a network; `None` where it has no such layer or rule.

    Attributes:
        name: of the network.
        description: one line.
        iters_local: iterations of its local GOCor layers.
        iters_global: iterations of its global GOCor layer.
        updates: recurrent updates.
        min_size: its own `min_size`.
        can_align: whether it can align images of a wide baseline.
    """

    name: str
    description: str
    iters_local: int | None
    iters_global: int | None
    updates: int | None
    min_size: int
    can_align: bool


@cache
def facts_of(name: str) -> Facts:
    """The facts about a network, without loading its weights."""
    network = sketch(name)
    layers = [module for module in network.modules() if isinstance(module, GOCor)]
    local = [layer.iters for layer in layers if isinstance(layer, LocalGOCor)]
    total = [layer.iters for layer in layers if not isinstance(layer, LocalGOCor)]
    return Facts(
        name=name,
        description=REGISTRY[name].description,
        iters_local=max(local) if local else None,
        iters_global=max(total) if total else None,
        updates=network.updates,
        min_size=network.min_size,
        can_align=network.can_align,
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a visitor chose. The names are those of `MatchOptions` and of the query string."""

    model: str
    iters_global: int = 3
    iters_local: int = 3
    updates: int = 12
    min_size: int = 0
    max_size: int = CPU_SIZE
    align: bool = True

    def options(self) -> MatchOptions:
        """The options of matching; what the network does not have is left out."""
        facts = facts_of(self.model)
        return MatchOptions(
            iters_global=self.iters_global if facts.iters_global is not None else None,
            iters_local=self.iters_local if facts.iters_local is not None else None,
            updates=self.updates if facts.updates is not None else None,
            min_size=min(self.min_size, self.max_size),
            max_size=self.max_size,
            align=self.align and facts.can_align,
        )

    def to_query(self) -> str:
        """The query string that restores the settings, with its question mark."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return "?" + urlencode({name: int(v) if isinstance(v, bool) else v for name, v in values.items()})


def bounds(largest: int) -> dict[str, tuple[int, int]]:
    """Smallest and largest value of each number; `largest` bounds the sizes."""
    return {
        "iters_global": (0, MAX_ITERS),
        "iters_local": (0, MAX_ITERS),
        "updates": (1, MAX_UPDATES),
        "min_size": (0, largest),
        "max_size": (SMALLEST_SIZE, largest),
    }


def start_settings(model: str, device: torch.device, largest: int = MAX_SIZE) -> Settings:
    """The settings that the page starts with: the network's own, but a smaller resolution on a CPU, to be quick."""
    facts, on_cpu = facts_of(model), device.type == "cpu"
    return Settings(
        model=model,
        iters_global=3 if facts.iters_global is None else facts.iters_global,
        iters_local=3 if facts.iters_local is None else facts.iters_local,
        updates=facts.updates or 12,
        min_size=0 if on_cpu else min(facts.min_size, largest),
        max_size=min(CPU_SIZE, largest) if on_cpu else largest,
        align=facts.can_align,
    )


def from_query(query: Mapping[str, str], start: Settings, models: list[str], largest: int = MAX_SIZE) -> Settings:
    """The settings of a query string; entries that it does not have are those of `start`.

    Args:
        query: entries by name; unknown names are ignored.
        start: the settings that it changes.
        models: names of networks that may be chosen.
        largest: largest size.
    """
    found: dict[str, str | int | bool] = {}
    if "model" in query:
        if query["model"] not in models:
            raise InputError(
                f"no network of this page is named {_shown(query['model'])}; there are {', '.join(models)}"
            )
        found["model"] = query["model"]
    for name, (low, high) in bounds(largest).items():
        if name in query:
            text = query[name]
            if not text.isdecimal() or len(text) > MAX_DIGITS or not low <= int(text) <= high:
                raise InputError(f"{name} must be a whole number between {low} and {high}, got {_shown(text)}")
            found[name] = int(text)
    if "align" in query:
        if query["align"] not in ("0", "1"):
            raise InputError(f"align must be 0 or 1, got {_shown(query['align'])}")
        found["align"] = query["align"] == "1"
    return replace(start, **found)  # type: ignore[arg-type]


def _shown(text: str) -> str:
    """A value for a message; a link can hold a text of any length."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
