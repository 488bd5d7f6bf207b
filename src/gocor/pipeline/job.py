"""What to match and how, as plain data that can be sent to another process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..matching.options import DEFAULT_OPTIONS, MatchOptions
from ..models.weights import SHIPPED
from ..utils.checks import check_count
from ..utils.defaults import MODEL
from ..utils.files import file_stamp
from .pairs import Pair

Note = dict[str, Any]
"""Everything that a result depends on. It is stored with the result, which is out of date if the note differs."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """How to match pairs and what to write of each.

    Attributes:
        model: name of the network.
        weights: see `load_model`.
        matching: see `match`.
        batch: number of pairs of equal sizes that are matched at once.
        formats: formats of the flow, see `save_result`; without any, only the matches are stored.
        max_points: see `MatchResult.matches`.
        min_confidence: see `MatchResult.matches`.
        pictures: draw the pictures of `save_result`.
        fast: see `load_model`.
    """

    model: str = MODEL
    weights: str | None = "default"
    matching: MatchOptions = DEFAULT_OPTIONS
    batch: int = 4
    formats: Sequence[str] = ("flo",)
    max_points: int = 5000
    min_confidence: float = 0.5
    pictures: bool = False
    fast: bool = False

    def __post_init__(self) -> None:
        check_count("batch", self.batch, minimum=1)

    @cached_property
    def _of_all_pairs(self) -> Note:
        """The part of a note that is the same for all pairs, with the state of the weights at the first call."""
        weights = SHIPPED / f"{self.model}.safetensors" if self.weights == "default" else self.weights
        return {
            "model": self.model,
            "weights": None if weights is None else file_stamp(weights),
            **self.matching.as_dict(),
            "formats": list(self.formats),
            "max_points": self.max_points,
            "min_confidence": self.min_confidence,
            "pictures": self.pictures,
        }

    def note(self, pair: Pair) -> Note:
        """What the result of a pair depends on, with the present state of its files."""
        return {**self._of_all_pairs, "reference": file_stamp(pair.reference), "query": file_stamp(pair.query)}


def is_up_to_date(done: Mapping[str, Any], note: Note) -> bool:
    """Whether the entries of a `done.json` are those of a complete result with this note."""
    return bool(done) and all(done.get(key) == value for key, value in note.items())


@dataclass(frozen=True)
class Saved:
    """A result that is in its store.

    Attributes:
        place: where it is, as text to show.
        files: paths of its files; empty for a store that is one file.
        confidence: mean confidence.
        matches: number of rows of `MatchResult.matches`.
    """

    place: str
    files: tuple[Path | str, ...]
    confidence: float
    matches: int


class Outcome(NamedTuple):
    """The outcome of a pair in a worker: what the store prepared for its result, or the error that prevented it."""

    pair: Pair
    prepared: Any


class Report(NamedTuple):
    """The outcome of a pair: its saved result, or the error that prevented it."""

    pair: Pair
    result: Saved | Exception
