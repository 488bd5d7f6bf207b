"""The folder beside the output that holds unfinished work, so that an interrupted run continues where it stopped."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..utils.errors import InputError
from ..utils.files import atomic_path, remove_leftovers, write_bytes_atomically
from .tracks import Points

CHUNK = 16  # frames of a chunk; an interrupted run loses at most so many
JOB, CLIP = "job.json", "clip.json"


class Analysis(NamedTuple):
    """Results of the frames of a chunk.

    Attributes:
        rows: places of the tracks in each frame, `(N, 4)`: frame, track, x, y.
        motions: motions of the camera from each frame to the next, `(n, 3, 3)`; empty without stabilisation.
        points: points of the frame after the chunk, whose tracks continue.
        next_id: number of the next track.
    """

    rows: NDArray[np.float64]
    motions: NDArray[np.float64]
    points: Points
    next_id: int

    def points_of(self, frame: int) -> Points:
        """The points of a frame of the chunk."""
        own = self.rows[self.rows[:, 0] == frame]
        return Points(own[:, 1].astype(np.int64), own[:, 2:])


class Work:
    """Finished chunks of a run.

    Args:
        output: what the run makes; the folder is beside it, with `.work` appended to its name.
        job: everything that the output depends on. Work of another job is discarded.
    """

    def __init__(self, output: Path, job: dict[str, Any]) -> None:
        self.folder = output.resolve().with_name(output.resolve().name + ".work")
        job = json.loads(json.dumps(job))
        remove_leftovers(self.folder)
        old = _read(self.folder / JOB)
        if self.folder.exists() and old is None and any(self.folder.iterdir()):
            raise InputError(f"{self.folder} is in the way: unfinished work is kept under this name, move it elsewhere")
        if old is not None and old != job:
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if old != job:
            write_bytes_atomically(self.folder / JOB, json.dumps(job).encode())

    def clip(self) -> dict[str, Any] | None:
        """What was found out about the clip; `None` at the start."""
        return _read(self.folder / CLIP)

    def save_clip(self, facts: dict[str, Any]) -> None:
        """Store what was found out about the clip."""
        write_bytes_atomically(self.folder / CLIP, json.dumps(facts).encode())

    def finished(self, chunks: Sequence[range]) -> int:
        """How many chunks were analysed, counted from the first."""
        missing = (number for number, chunk in enumerate(chunks) if not self._file(chunk).is_file())
        return next(missing, len(chunks))

    def save(self, chunk: range, analysis: Analysis) -> None:
        """Store the analysis of a chunk, which marks the chunk as finished."""
        with atomic_path(self._file(chunk)) as path:
            np.savez(
                path,
                rows=analysis.rows,
                motions=analysis.motions,
                ids=analysis.points.ids,
                places=analysis.points.places,
                next_id=analysis.next_id,
            )

    def load(self, chunk: range) -> Analysis:
        """The analysis of a finished chunk."""
        with np.load(self._file(chunk)) as stored:
            points = Points(stored["ids"], stored["places"])
            return Analysis(stored["rows"], stored["motions"], points, int(stored["next_id"]))

    def remove(self) -> None:
        """Remove the folder after the output was published."""
        shutil.rmtree(self.folder)

    def _file(self, chunk: range) -> Path:
        return self.folder / f"analysis-{chunk.start:06d}.npz"


def make_chunks(count: int) -> list[range]:
    """Divide the frames of a clip of at least two. No chunk begins at the last frame, which has no next one."""
    starts = range(0, count - 1, CHUNK)
    stops = [*starts[1:], count]
    return [range(start, stop) for start, stop in zip(starts, stops, strict=True)]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
