"""COLMAP's text format (ETH3D is published in it): correspondences and relative poses.

COLMAP puts the centre of the upper left pixel at (½, ½); here it is at (0, 0).
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...utils.arrays import Array
from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from .pair import Cameras

MAX_VALUE = 2.0**53  # larger numbers of points cannot be told apart
PINHOLES = {"PINHOLE": (0, 1, 2, 3), "SIMPLE_PINHOLE": (0, 0, 1, 2)}


@dataclass(frozen=True, eq=False)
class View:
    """A registered image: its file, its camera, its pose (world → camera), and the 3-D points visible in it."""

    name: str
    camera: int
    rotation: Array
    translation: Array
    ids: np.ndarray  # (N,), numbers of the 3-D points, ascending
    points: Array  # (N, 2), their pixels


def read_views(path: PathLike) -> list[View]:
    """Read `images.txt`: two lines per image, one with pose, camera and name, one with x, y, id of every keypoint.

    Keypoints without a 3-D point have the id −1 and are left out.
    """
    lines = [line for line in read_bytes(path).decode("utf-8", "replace").splitlines() if not line.startswith("#")]
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) % 2:
        lines.append("")  # the last image has no keypoints
    views = []
    for head, body in zip(lines[::2], lines[1::2], strict=True):
        fields = head.split(maxsplit=9)
        try:
            pose = np.array(fields[1:8], np.float64)
            camera, name = int(fields[8]), fields[9].strip()
            table = np.array(body.split(), np.float64).reshape(-1, 3)
            if not (np.isfinite(pose).all() and np.isfinite(table).all() and (np.abs(table) < MAX_VALUE).all()):
                raise ValueError
            rotation = quaternion(pose[:4])
        except (ValueError, IndexError):
            raise InputError(f"{path} is not COLMAP's images.txt: cannot read the image {head[:60]!r}") from None
        table = table[table[:, 2] >= 0]
        ids, first = np.unique(table[:, 2].astype(np.int64), return_index=True)
        views.append(View(name, camera, rotation, pose[4:], ids, table[first, :2] - 0.5))
    return views


def read_intrinsics(path: PathLike) -> dict[int, Array]:
    """Read `cameras.txt`: intrinsic matrices `(3, 3)` by camera number; only pinhole cameras have one."""
    cameras = {}
    for line in read_bytes(path).decode("utf-8", "replace").splitlines():
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        try:
            number, model = int(fields[0]), fields[1]
            if model not in PINHOLES:
                continue
            values = [float(value) for value in fields[4:]]
            fx, fy, cx, cy = (values[i] for i in PINHOLES[model])
        except (ValueError, IndexError):
            raise InputError(f"{path} is not COLMAP's cameras.txt: cannot read the camera {line[:60]!r}") from None
        matrix = np.array([[fx, 0, cx - 0.5], [0, fy, cy - 0.5], [0, 0, 1]])
        if not np.isfinite(matrix).all() or fx == 0 or fy == 0:
            raise InputError(f"{path}: the focal lengths and the centre of camera {number} must be finite, not 0")
        cameras[number] = matrix
    return cameras


def correspondences(reference: View, query: View) -> Array:
    """Rows x, y, x′, y′ of the 3-D points that are visible in both views."""
    _, first, second = np.intersect1d(reference.ids, query.ids, assume_unique=True, return_indices=True)
    return np.concatenate([reference.points[first], query.points[second]], 1)


def relative(reference: View, query: View, intrinsics: dict[int, Array]) -> Cameras | None:
    """Calibration and relative pose of two views; None unless both cameras are pinhole cameras."""
    if reference.camera not in intrinsics or query.camera not in intrinsics:
        return None
    rotation = query.rotation @ reference.rotation.T
    translation = query.translation - rotation @ reference.translation
    return Cameras(intrinsics[reference.camera], intrinsics[query.camera], rotation, translation)


def quaternion(values: Array) -> Array:
    """Rotation matrix of a quaternion (w, x, y, z), which must not be zero."""
    norm = math.hypot(*values)
    if not 0 < norm < MAX_VALUE:
        raise InputError(f"a quaternion must have a length above 0, got {norm:g}")
    w, x, y, z = values / norm
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def model_folder(sequence: Path) -> Path | None:
    """Folder of an ETH3D sequence's reconstruction, preferably the one of the undistorted images."""
    for name in ("rig_calibration_undistorted", "rig_calibration"):
        if (sequence / name / "images.txt").is_file():
            return sequence / name
    return None
