"""A store of the pipeline that keeps, for each pair, where the anchors of each image are in the other one."""

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..matching.result import MatchResult
from ..pipeline.job import Job, Note, Saved
from ..pipeline.pairs import Pair
from ..pipeline.stores import Store
from ..utils.checks import check_count
from ..utils.documents import parse_json
from ..utils.errors import GOCorError
from ..utils.files import check_folder, remove_leftovers, write_bytes_atomically
from .anchors import Transfer, find_anchors, transfer_anchors

SUFFIX = ".npz"


@dataclass(frozen=True)
class AnchorStore(Store):
    """One file per pair in a folder.

    Args:
        folder: folder to write to; it is created if it does not exist.
        max_keypoints: largest number of anchors of an image.
    """

    folder: Path
    max_keypoints: int

    def __post_init__(self) -> None:
        check_count("max_keypoints", self.max_keypoints, minimum=16)

    def check(self, job: Job) -> None:  # noqa: D102
        check_folder(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)

    def place(self, pair: Pair) -> str:  # noqa: D102
        return str(self._path(pair))

    def is_finished(self, pair: Pair, note: Note) -> bool:  # noqa: D102
        try:
            with np.load(self._path(pair)) as file:
                return bool(parse_json(str(file["note"])) == self._note(note))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, GOCorError):  # absent, or of another program
            return False

    def prepare(self, pair: Pair, result: MatchResult, job: Job, note: Note) -> Saved:  # noqa: D102
        anchors, others = (find_anchors(picture, self.max_keypoints) for picture in (result.reference, result.query))
        forward, backward = transfer_anchors(result, anchors, others, min_confidence=job.min_confidence)
        arrays = {"reference_anchors": anchors, "query_anchors": others, "note": np.array(json.dumps(self._note(note)))}
        for name, transfer in (("forward", forward), ("backward", backward)):
            arrays |= {f"{name}_{key}": value for key, value in transfer._asdict().items()}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_bytes_atomically(self._path(pair), buffer.getvalue())
        confidence, matches = float(result.confidence.mean()), len(forward.anchors) + len(backward.anchors)
        return Saved(self.place(pair), (self._path(pair),), confidence, matches)

    def read(self, pair: Pair) -> "PairMatches":
        """What was stored of a pair."""
        with np.load(self._path(pair)) as file:
            forward, backward = (
                Transfer(*(file[f"{name}_{key}"] for key in Transfer._fields)) for name in ("forward", "backward")
            )
            return PairMatches(file["reference_anchors"], file["query_anchors"], forward, backward)

    def _path(self, pair: Pair) -> Path:
        return self.folder / f"{pair.name}{SUFFIX}"

    def _note(self, note: Note) -> Note:
        """The note with everything else that the file depends on, in the form that JSON gives back."""
        return dict(json.loads(json.dumps({**note, "max_keypoints": self.max_keypoints})))


@dataclass(frozen=True)
class PairMatches:
    """The anchors of both images of a pair, and where they were found in the other one.

    Attributes:
        reference_anchors: `(N, 2)` int32, x first.
        query_anchors: `(M, 2)` int32.
        forward: the reference's anchors in the query.
        backward: the query's anchors in the reference.
    """

    reference_anchors: np.ndarray[tuple[int, ...], np.dtype[np.int32]]
    query_anchors: np.ndarray[tuple[int, ...], np.dtype[np.int32]]
    forward: Transfer
    backward: Transfer
