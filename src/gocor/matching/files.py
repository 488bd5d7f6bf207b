"""Results as files in a folder, with a file that marks them as complete."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from ..data.io import write_flow, write_image
from ..ops.warp import inside_mask
from ..utils.arrays import Picture
from ..utils.documents import parse_json
from ..utils.errors import InputError
from ..utils.files import PathLike, read_bytes, remove_leftovers, write_bytes_atomically
from ..utils.locks import locked_folder
from ..viz.drawing import draw_confidence, draw_flow, draw_matches, draw_overlay
from .result import MatchResult

LOG = logging.getLogger("gocor.matching")

FLOW_FILES = {"flo": "flow.flo", "kitti": "flow_kitti.png", "npz": "flow.npz", "pfm": "flow.pfm"}
PICTURES = ("flow.png", "warped.png", "overlay.png", "matches.png", "confidence.png")
DONE = "done.json"
CSV, CSV_HEADER, CSV_ROW = "matches.csv", "x,y,x_query,y_query,confidence\n", "%.0f,%.0f,%.3f,%.3f,%.4f\n"


def save_result(
    result: MatchResult,
    folder: PathLike,
    *,
    formats: Sequence[str] = ("flo",),
    pictures: bool = True,
    max_points: int = 5000,
    min_confidence: float = 0.5,
    note: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write a result to a folder, which is created if it does not exist.

    - the flow at full resolution: `flow.flo`, `flow_kitti.png`, `flow.npz` (with the arrays `confidence` and
      `occlusion` beside `flow`) and `flow.pfm`, by `formats`;
    - pictures: `flow.png`, `warped.png` (the query warped to the reference, at full resolution), `overlay.png`,
      `matches.png` and `confidence.png`;
    - `matches.csv`: x, y, x_query, y_query, confidence, highest first;
    - `done.json`, written last, so that it marks a complete result. It holds the model, sizes, options and the note.

    Every file is written completely or not at all. Flow files and pictures that an earlier `done.json` lists and this
    result does not replace are removed, and a second process waits until the first has written its result, so that a
    folder never mixes two results.

    Args:
        result: what `match` returns.
        folder: where to write.
        formats: any of `flo`, `kitti`, `npz` and `pfm`, or none of them.
        pictures: draw the pictures.
        max_points: see `MatchResult.matches`.
        min_confidence: see `MatchResult.matches`.
        note: further entries of `done.json`, for example the weights that were used.

    Returns:
        Paths of the files, `done.json` last.
    """
    check_formats(formats)
    LOG.info("writing %s", folder)
    matches = result.matches(max_points, min_confidence)
    drawn = _draw(result, matches) if pictures else {}
    folder = Path(folder)
    flows = [FLOW_FILES[name] for name in dict.fromkeys(formats)]
    names = [*flows, *drawn, CSV]
    rows = (CSV_ROW * len(matches)) % tuple(matches.ravel().tolist())
    done = facts_of(result, matches) | {
        "formats": list(formats),
        "max_points": max_points,
        "min_confidence": min_confidence,
        "files": names,
        **(note or {}),
    }
    with locked_folder(folder, wait=True):
        remove_leftovers(folder)
        _remove_outdated(folder, (*flows, *drawn))
        for name in flows:
            certain = {"confidence": result.confidence.numpy(), "occlusion": result.occlusion.numpy()}
            write_flow(folder / name, result.flow.numpy(), **(certain if name == FLOW_FILES["npz"] else {}))
        for name, picture in drawn.items():
            write_image(folder / name, picture)
        write_bytes_atomically(folder / CSV, (CSV_HEADER + rows).encode())
        write_bytes_atomically(folder / DONE, (json.dumps(done, indent=2) + "\n").encode())
    return [folder / name for name in (*names, DONE)]


def facts_of(result: MatchResult, matches: NDArray[np.float32]) -> dict[str, Any]:
    """The entries of `done.json` that the result determines."""
    return {
        "gocor": __version__,
        "model": result.model,
        "reference_size": result.reference.shape[:2],
        "query_size": result.query.shape[:2],
        "matches": len(matches),
        "mean_confidence": round(float(result.confidence.mean()), 4),
    }


def _draw(result: MatchResult, matches: NDArray[np.float32]) -> dict[str, Picture]:
    """Pictures of a result by file name."""
    inside, warped = inside_mask(result.flow[None], result.query.shape[:2])[0, 0].numpy(), result.warp()
    drawn = (
        draw_flow(result.flow),
        warped,
        draw_overlay(result.reference, warped, inside),
        draw_matches(result.reference, result.query, matches),
        draw_confidence(result.confidence),
    )
    return dict(zip(PICTURES, drawn, strict=True))


def _remove_outdated(folder: Path, names: Sequence[str]) -> None:
    """Remove `done.json`, and the flow files and pictures that it lists, but for those in `names`."""
    listed = read_done(folder).get("files")
    outdated = {name for name in (*FLOW_FILES.values(), *PICTURES) if isinstance(listed, list) and name in listed}
    for name in (DONE, *(outdated - set(names))):
        (folder / name).unlink(missing_ok=True)


def read_done(folder: PathLike) -> dict[str, Any]:
    """Content of `done.json` in a folder; empty if there is none, or if it cannot be read."""
    try:
        return parse_done(read_bytes(Path(folder) / DONE))
    except (OSError, ValueError):
        return {}


def parse_done(data: str | bytes) -> dict[str, Any]:
    """The entries of a `done.json`; none if it is not whole."""
    try:
        content = parse_json(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def check_formats(formats: Sequence[str]) -> None:
    """Raise an error for anything but a list of names of flow formats."""
    if isinstance(formats, str):
        raise InputError(f"formats must be a list of names, such as [{formats!r}], got {formats!r}")
    for name in formats:
        if name not in FLOW_FILES:
            raise InputError(f"no flow format is named {name!r}; there are {', '.join(FLOW_FILES)}")
