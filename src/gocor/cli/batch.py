"""What `gocor match` does: leave out finished pairs, match the others in batches, save each as soon as it is there."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..matching.api import match_stream
from ..matching.files import read_done, save_result
from ..matching.images import as_picture
from ..matching.options import MatchOptions
from ..matching.result import MatchResult
from ..models.network import MatchingNetwork
from ..models.weights import SHIPPED
from ..utils.arrays import Picture
from ..utils.files import file_stamp
from .errors import is_explained, is_out_of_memory
from .pairs import Pair

Loaded = tuple[Pair, Picture, Picture]


@dataclass(frozen=True)
class Options:
    """How to match and what to write; see `match` and `save_result`."""

    model: str
    weights: str | None
    device: str
    matching: MatchOptions
    batch: int
    formats: Sequence[str]
    max_points: int
    min_confidence: float


@dataclass(frozen=True)
class Saved:
    """A result in its folder."""

    files: list[Path]
    confidence: float  # mean


def is_finished(pair: Pair, options: Options) -> bool:
    """Whether the folder of a pair holds a whole result of these files with these options."""
    done = read_done(pair.folder)
    files = done.get("files")
    return (
        isinstance(files, list)
        and all(done.get(key) == value for key, value in _note(pair, options).items())
        and all((pair.folder / str(name)).is_file() for name in files)
    )


def match_pairs(
    pairs: Sequence[Pair], network: MatchingNetwork, options: Options
) -> Iterator[tuple[Pair, Saved | Exception]]:
    """Match pairs and save them, and say of each where it is or what was wrong with it.

    An error while writing is raised: the others would meet it too. So are programming errors.
    """
    for start in range(0, len(pairs), options.batch):
        loaded: list[Loaded] = []
        for pair in pairs[start : start + options.batch]:
            try:
                loaded.append((pair, as_picture(pair.reference), as_picture(pair.query)))
            except Exception as error:
                yield pair, _explained(error)
        yield from _match_loaded(loaded, network, options)


def _match_loaded(
    loaded: list[Loaded], network: MatchingNetwork, options: Options
) -> Iterator[tuple[Pair, Saved | Exception]]:
    pictures = [(reference, query) for _, reference, query in loaded]
    try:
        results = list(match_stream(pictures, network, options.matching, batch_size=options.batch))
    except Exception as error:
        failure = _explained(error)
    else:
        for (pair, *_), result in zip(loaded, results, strict=True):
            yield pair, _save(pair, result, options)
        return
    if len(loaded) == 1:
        yield loaded[0][0], failure
    else:  # whose fault it is, and whether there is memory for one, is found out one by one
        del failure
        for one in loaded:
            yield from _match_loaded([one], network, options)


def _save(pair: Pair, result: MatchResult, options: Options) -> Saved | Exception:
    try:
        files = save_result(
            result,
            pair.folder,
            formats=options.formats,
            max_points=options.max_points,
            min_confidence=options.min_confidence,
            note=_note(pair, options),
        )
    except ValueError as error:  # a flow that the format cannot hold
        return _explained(error)
    return Saved(files, float(result.confidence.mean()))


def _explained(error: Exception) -> Exception:
    """An error that a line can tell of; others are raised."""
    if not is_explained(error):
        raise error
    # Anew, as the traceback of the old one holds on to the memory.
    return MemoryError(str(error)) if is_out_of_memory(error) else error


def _note(pair: Pair, options: Options) -> dict[str, Any]:
    """All that a result depends on: one with another note has to be made anew."""
    weights = SHIPPED / f"{options.model}.safetensors" if options.weights == "default" else options.weights
    return {
        "model": options.model,
        "weights": None if weights is None else file_stamp(weights),
        "reference": file_stamp(pair.reference),
        "query": file_stamp(pair.query),
        **options.matching.as_dict(),
        "formats": list(options.formats),
        "max_points": options.max_points,
        "min_confidence": options.min_confidence,
    }


@contextmanager
def progress_bar(total: int, *, shown: bool) -> Iterator[Callable[[], None]]:
    """A bar, in a terminal, that moves on by one with each call of what it yields; what is printed stands above it."""
    if not (shown and sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("matching"), BarColumn(), MofNCompleteColumn(), TextColumn("left:"), TimeRemainingColumn()
    with Progress(*columns) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
