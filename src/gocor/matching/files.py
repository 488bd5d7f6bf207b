"""A result as files in a folder, and the mark that says that it is whole."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..data.io import write_flow, write_image
from ..ops.warp import inside_mask
from ..utils.files import PathLike, write_bytes_atomically
from ..viz.drawing import draw_confidence, draw_flow, draw_matches, draw_overlay

if TYPE_CHECKING:
    from .api import MatchResult

FLOW_FILES = {"flo": "flow.flo", "kitti": "flow_kitti.png", "npz": "flow.npz", "pfm": "flow.pfm"}
DONE = "done.json"
CSV, CSV_HEADER = "matches.csv", "x,y,x_query,y_query,confidence\n"


def save_result(
    result: "MatchResult",
    folder: PathLike,
    *,
    formats: Sequence[str] = ("flo",),
    max_points: int = 5000,
    min_confidence: float = 0.5,
    note: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write a result to a folder, which is made if need be.

    - the flow at full resolution: `flow.flo`, `flow_kitti.png`, `flow.npz` and `flow.pfm`, as asked for;
    - pictures: `flow.png`, `warped.png` (the query seen from the reference, at full resolution), `overlay.png`,
      `matches.png` and `confidence.png`;
    - `matches.csv`: x, y, x_query, y_query, confidence, best first;
    - `done.json`, last: it is there if everything else is. It holds the model, sizes, options, and the note.

    Every file is written whole or not at all. Files that an earlier `done.json` lists are removed where this result has
    none to put in their place, so that a folder never mixes two results.

    Args:
        result: what `match` returns.
        folder: where to.
        formats: any of `flo`, `kitti`, `npz` and `pfm`.
        max_points: see `MatchResult.matches`.
        min_confidence: see `MatchResult.matches`.
        note: what else to keep in `done.json`, for example which weights were used.

    Returns:
        Paths of the files, `done.json` last.
    """
    check_formats(formats)
    matches = result.matches(max_points, min_confidence)
    shown, warped = inside_mask(result.flow[None], result.query.shape[:2])[0, 0].numpy(), result.warp()
    pictures = {
        "flow.png": draw_flow(result.flow),
        "warped.png": warped,
        "overlay.png": draw_overlay(result.reference, warped, shown),
        "matches.png": draw_matches(result.reference, result.query, matches),
        "confidence.png": draw_confidence(result.confidence),
    }

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    listed = read_done(folder).get("files")
    names = [FLOW_FILES[name] for name in dict.fromkeys(formats)]
    outdated = {name for name in FLOW_FILES.values() if isinstance(listed, list) and name in listed}
    for name in (DONE, *(outdated - set(names))):
        (folder / name).unlink(missing_ok=True)
    for name in names:
        write_flow(folder / name, result.flow.numpy())
    for name, picture in pictures.items():
        write_image(folder / name, picture)
    rows = "".join(f"{x:.0f},{y:.0f},{u:.3f},{v:.3f},{score:.4f}\n" for x, y, u, v, score in matches.tolist())
    write_bytes_atomically(folder / CSV, (CSV_HEADER + rows).encode())
    names += [*pictures, CSV]
    done = {
        "gocor": __version__,
        "model": result.model,
        "reference_size": result.reference.shape[:2],
        "query_size": result.query.shape[:2],
        "formats": list(formats),
        "max_points": max_points,
        "min_confidence": min_confidence,
        "matches": len(matches),
        "mean_confidence": round(float(result.confidence.mean()), 4),
        "files": names,
        **(note or {}),
    }
    write_bytes_atomically(folder / DONE, (json.dumps(done, indent=2) + "\n").encode())
    return [folder / name for name in (*names, DONE)]


def read_done(folder: PathLike) -> dict[str, Any]:
    """What `done.json` in a folder says; empty where there is none, or none that can be read."""
    try:
        content = json.loads((Path(folder) / DONE).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def check_formats(formats: Sequence[str]) -> None:
    """An error where there is anything but names of flow formats."""
    if isinstance(formats, str):
        raise ValueError(f"formats must be a list of names, such as [{formats!r}], got {formats!r}")
    for name in formats:
        if name not in FLOW_FILES:
            raise ValueError(f"no flow format is named {name!r}; there are {', '.join(FLOW_FILES)}")
