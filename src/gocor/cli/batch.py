"""The work of `gocor match`: match pairs in batches, save each result at once, and recognise finished pairs."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..matching.api import MatchResult, as_picture, match_stream
from ..matching.files import read_done, save_result
from ..models.network import MatchingNetwork
from ..models.weights import SHIPPED
from ..utils.arrays import Picture
from ..utils.errors import InputError
from .errors import is_out_of_memory, is_user_error
from .pairs import Pair

Loaded = tuple[Pair, Picture, Picture]


@dataclass(frozen=True)
class Options:
    """How to match (see `match`) and what to write (see `save_result`)."""

    model: str
    weights: str | None
    device: str
    iters_local: int | None
    iters_global: int | None
    min_size: int | None
    max_size: int | None
    align: bool | None
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
        results = list(
            match_stream(
                pictures,
                network,
                batch_size=options.batch,
                iters_local=options.iters_local,
                iters_global=options.iters_global,
                min_size=options.min_size,
                max_size=options.max_size,
                align=options.align,
            )
        )
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
    stamps = {
        "weights": None if weights is None else _stamp(Path(weights)),
        "reference": _stamp(pair.reference),
        "query": _stamp(pair.query),
    }
    return {key: value for key, value in asdict(options).items() if key not in ("device", "batch")} | stamps


def _stamp(path: Path) -> dict[str, Any] | None:
    """Path, size and modification time of a file; None if it does not exist."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    return {"path": str(path.resolve()), "bytes": state.st_size, "modified": state.st_mtime_ns}


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
