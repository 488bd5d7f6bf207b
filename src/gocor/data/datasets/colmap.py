"""COLMAP's text format, as far as correspondences and relative poses need it (ETH3D is published in it).

Its image coordinates have the centre of the upper left pixel at (½, ½); ours have it at (0, 0).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from .pair import Cameras, Points

PINHOLES = {"PINHOLE": (0, 1, 2, 3), "SIMPLE_PINHOLE": (0, 0, 1, 2)}


@dataclass(frozen=True, eq=False)
class View:
    """A registered image: its file, pose (world → camera), camera, and the 3-D points it shows."""

    name: str
    camera: int
    rotation: Points
    translation: Points
    ids: np.ndarray  # (N,), of 3-D points, ascending
    points: Points  # (N, 2), pixels


def read_views(path: PathLike) -> list[View]:
    """`images.txt`, in its order: two lines an image, pose and name, then x, y, id of every keypoint (−1: no point)."""
    lines = [line for line in read_bytes(path).decode("utf-8", "replace").splitlines() if not line.startswith("#")]
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) % 2:
        lines.append("")  # the last image shows no points
    views = []
    for head, body in zip(lines[::2], lines[1::2], strict=True):
        fields = head.split(maxsplit=9)
        try:
            pose = np.array(fields[1:8], np.float64)
            camera, name = int(fields[8]), fields[9].strip()
            table = np.array(body.split(), np.float64).reshape(-1, 3)
        except (ValueError, IndexError):
            raise InputError(f"{path} is not an images.txt of COLMAP: {head[:60]!r}") from None
        table = table[table[:, 2] >= 0]
        ids, first = np.unique(table[:, 2].astype(np.int64), return_index=True)
        views.append(View(name, camera, quaternion(pose[:4]), pose[4:], ids, table[first, :2] - 0.5))
    return views


def read_intrinsics(path: PathLike) -> dict[int, Points]:
    """`cameras.txt`: matrices `(3, 3)` of the pinhole cameras, by number; others are left out."""
    cameras = {}
    for line in read_bytes(path).decode("utf-8", "replace").splitlines():
        fields = line.split()
        if not fields or line.startswith("#") or fields[1] not in PINHOLES:
            continue
        values = [float(value) for value in fields[4:]]
        fx, fy, cx, cy = (values[i] for i in PINHOLES[fields[1]])
        cameras[int(fields[0])] = np.array([[fx, 0, cx - 0.5], [0, fy, cy - 0.5], [0, 0, 1]])
    return cameras


def correspondences(reference: View, query: View) -> Points:
    """Rows x, y, x′, y′ of the 3-D points that both views show."""
    _, first, second = np.intersect1d(reference.ids, query.ids, assume_unique=True, return_indices=True)
    return np.concatenate([reference.points[first], query.points[second]], 1)


def relative(reference: View, query: View, intrinsics: dict[int, Points]) -> Cameras | None:
    """Calibration and relative pose of two views, where both are pinhole cameras."""
    if reference.camera not in intrinsics or query.camera not in intrinsics:
        return None
    rotation = query.rotation @ reference.rotation.T
    translation = query.translation - rotation @ reference.translation
    return Cameras(intrinsics[reference.camera], intrinsics[query.camera], rotation, translation)


def quaternion(values: Points) -> Points:
    """Rotation matrix of a quaternion w, x, y, z."""
    w, x, y, z = values / np.linalg.norm(values)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def model_folder(sequence: Path) -> Path | None:
    """The reconstruction of an ETH3D sequence: of the undistorted images, else of the original ones."""
    for name in ("rig_calibration_undistorted", "rig_calibration"):
        if (sequence / name / "images.txt").is_file():
            return sequence / name
    return None
