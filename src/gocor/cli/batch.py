"""The work of `gocor match`: match pairs in batches, save each result at once, and recognise finished pairs."""

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
from ..utils.errors import InputError, is_out_of_memory
from ..utils.files import file_stamp
from .errors import is_user_error
from .pairs import Pair

Loaded = tuple[Pair, Picture, Picture]


@dataclass(frozen=True)
class Options:
    """How to match (see `match`) and what to write (see `save_result`)."""

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
    """A result that was written to its folder."""

    files: list[Path]
    confidence: float  # mean


def is_finished(pair: Pair, options: Options) -> bool:
    """Whether the folder of a pair holds a complete result, made from the same files with the same options."""
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
    """Match and save pairs; yield each with its saved result, or with the error that prevented it.

    Bugs and errors while writing are raised. An error while writing would affect all other pairs too.
    """
    for start in range(0, len(pairs), options.batch):
        loaded: list[Loaded] = []
        for pair in pairs[start : start + options.batch]:
            try:
                loaded.append((pair, as_picture(pair.reference), as_picture(pair.query)))
            except Exception as error:
                yield pair, _user_error(error)
        yield from _match_loaded(loaded, network, options)


def _match_loaded(
    loaded: list[Loaded], network: MatchingNetwork, options: Options
) -> Iterator[tuple[Pair, Saved | Exception]]:
    pictures = [(reference, query) for _, reference, query in loaded]
    try:
        results = list(match_stream(pictures, network, options.matching, batch_size=options.batch))
    except Exception as error:
        failure = _user_error(error)
    else:
        for (pair, *_), result in zip(loaded, results, strict=True):
            yield pair, _save(pair, result, options)
        return
    if len(loaded) == 1:
        yield loaded[0][0], failure
    else:  # one by one, only the pair at fault fails, and less memory is needed
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
    except InputError as error:  # the format cannot hold this flow
        return error
    return Saved(files, float(result.confidence.mean()))


def _user_error(error: Exception) -> Exception:
    """The error if it is the user's to solve; a bug is raised."""
    if not is_user_error(error):
        raise error
    # The traceback of torch's error would keep the tensors alive, so that a new one takes its place.
    return MemoryError(str(error)) if is_out_of_memory(error) else error


def _note(pair: Pair, options: Options) -> dict[str, Any]:
    """Everything that a result depends on; it is stored with the result, which is out of date if the note differs."""
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
    """A progress bar for terminals; yields the function that advances it by one."""
    if not (shown and sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("matching"), BarColumn(), MofNCompleteColumn(), TextColumn("left:"), TimeRemainingColumn()
    with Progress(*columns) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
