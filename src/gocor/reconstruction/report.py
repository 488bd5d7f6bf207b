"""Figures of a reconstruction."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..utils.files import write_bytes_atomically
from .graph import MatchGraph

REPORT = "report.json"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Facts about a reconstruction. Those of the model are `None` where only a database was written.

    Attributes:
        photos: number of photos.
        pairs: number of pairs that were matched.
        verified_pairs: number of pairs whose matches agree with an epipolar geometry or a homography.
        registered: photos of the largest model, whose pose is known.
        points: 3-D points of it.
        reprojection_error: mean over its points, in pixels.
        track_length: mean number of photos that show a point.
        models: number of models; photos of different models are not connected.
        unregistered: names of the photos that the largest model does not have.
        seconds: time of each stage.
    """

    photos: int
    pairs: int
    verified_pairs: int
    registered: int | None = None
    points: int | None = None
    reprojection_error: float | None = None
    track_length: float | None = None
    models: int | None = None
    unregistered: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str]]:
        """Names and values of the numbers, for a table."""
        rows = [
            ("photos", str(self.photos)),
            ("pairs matched", str(self.pairs)),
            ("pairs verified", str(self.verified_pairs)),
        ]
        if self.registered is None:
            return rows
        return [
            *rows,
            ("photos registered", str(self.registered)),
            ("points", str(self.points)),
            ("mean reprojection error", f"{self.reprojection_error:.3f} px"),
            ("mean track length", f"{self.track_length:.2f}"),
            ("models", str(self.models)),
        ]

    def to_json(self) -> str:
        """All facts as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)

    def write(self, folder: Path) -> Path:
        """Write `report.json`; returns its path."""
        path = folder / REPORT
        write_bytes_atomically(path, (self.to_json() + "\n").encode())
        return path


def report_of(graph: MatchGraph, verified: int, models: Sequence[Any], seconds: dict[str, float]) -> Report:
    """The report of a collection.

    Args:
        graph: matches of the collection.
        verified: number of verified pairs.
        models: models of `map_photos`, the largest first; none if only the database was written.
        seconds: time of each stage.
    """
    facts: dict[str, Any] = {"photos": len(graph.photos), "pairs": len(graph.matches), "verified_pairs": verified}
    if models:
        best = models[0]
        names = {best.images[number].name for number in best.reg_image_ids()}
        facts |= {
            "registered": len(names),
            "points": int(best.num_points3D()),
            "reprojection_error": float(best.compute_mean_reprojection_error()),
            "track_length": float(best.compute_mean_track_length()),
            "models": len(models),
            "unregistered": [photo.name for photo in graph.photos if photo.name not in names],
        }
    return Report(**facts, seconds={name: round(value, 2) for name, value in seconds.items()})
