"""Results as files in a folder, which holds one folder per pair."""

from pathlib import Path

from ...matching.files import check_formats, read_done, save_result
from ...matching.result import MatchResult
from ...utils.files import PathLike, check_folder, remove_leftovers
from ..job import Job, Note, Saved, is_up_to_date
from ..pairs import Pair
from .base import Store


class FolderStore(Store):
    """A store in a folder: the result of the only pair in the folder itself, those of several in one folder each.

    Args:
        root: the folder; it is created if it does not exist. A relative path refers to the current working directory.
    """

    def __init__(self, root: PathLike) -> None:
        self._root, self._base = Path(root), Path(root).absolute()

    def check(self, job: Job) -> None:  # noqa: D102
        check_formats(job.formats)
        check_folder(self._root)

    def place(self, pair: Pair) -> str:  # noqa: D102
        return str(self._root / pair.name)

    def is_finished(self, pair: Pair, note: Note) -> bool:
        """Whether there is a complete result with this note. Files that a killed process left beside it are removed."""
        folder = self._base / pair.name
        check_folder(folder)
        remove_leftovers(folder)
        done = read_done(folder)
        files = done.get("files") if is_up_to_date(done, note) else None
        return isinstance(files, list) and all((folder / str(name)).is_file() for name in files)

    def prepare(self, pair: Pair, result: MatchResult, job: Job, note: Note) -> Saved:  # noqa: D102
        files = write_result(result, self._base / pair.name, job, note)
        shown = tuple(self._root / pair.name / file.name for file in files)
        return saved(self.place(pair), shown, self._base / pair.name)


def write_result(result: MatchResult, folder: Path, job: Job, note: Note) -> list[Path]:
    """Write what a job asks for to a folder; returns the paths, `done.json` last."""
    return save_result(
        result,
        folder,
        formats=job.formats,
        pictures=job.pictures,
        max_points=job.max_points,
        min_confidence=job.min_confidence,
        note=note,
    )


def saved(place: str, files: tuple[Path | str, ...], folder: Path) -> Saved:
    """The facts of a result from its `done.json` in a folder."""
    done = read_done(folder)
    return Saved(place, files, done["mean_confidence"], done["matches"])
