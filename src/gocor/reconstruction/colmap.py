"""Keypoints and matches → a COLMAP database, verified pairs and a model, by pycolmap."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.checks import check_choice
from ..utils.errors import InputError
from ..utils.extras import import_extra
from ..utils.files import atomic_path
from .graph import MatchGraph
from .photos import Photo

CAMERA_MODELS = ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV")
FOCAL_FACTOR = 1.2  # focal length over the longer side where EXIF does not tell it, as in COLMAP
MIN_MODEL = 3  # photos of a model
PIXEL_CENTRE = 0.5  # the centre of the first pixel: (0.5, 0.5) in COLMAP, (0, 0) here
NOTHING = 3  # level of glog: what fails is an exception too
UNFINISHED = ".models"  # folder in the output, for models that are being made


@dataclass(frozen=True, kw_only=True)
class CameraOptions:
    """What is known of the cameras.

    Attributes:
        model: name of COLMAP's camera model, one of `CAMERA_MODELS`.
        focal: focal length in pixels to begin with; `None` takes that of EXIF, or 1.2 times the longer side.
        shared: photos of the same size and focal length have one camera.
    """

    model: str = "SIMPLE_RADIAL"
    focal: float | None = None
    shared: bool = True

    def __post_init__(self) -> None:
        check_choice("camera", self.model, CAMERA_MODELS)
        if self.focal is not None and not self.focal > 0:
            raise InputError(f"focal must be a positive number of pixels, got {self.focal}")


def import_pycolmap() -> Any:
    """The package pycolmap, which is optional."""
    return import_extra("pycolmap", "sfm", "a reconstruction")


def write_database(path: Path, graph: MatchGraph, cameras: CameraOptions) -> int:
    """Write a COLMAP database with verified matches, in place of an older one; returns the number of verified pairs."""
    pycolmap = import_pycolmap()
    with atomic_path(path) as temporary, _silent(pycolmap), _errors_of_writing(path):
        database = pycolmap.Database.open(temporary)
        try:
            with pycolmap.DatabaseTransaction(database):
                _write_tables(pycolmap, database, graph, cameras)
        finally:
            database.close()
        options = pycolmap.TwoViewGeometryOptions()
        options.ransac.random_seed = 0
        pycolmap.geometric_verification(temporary, two_view_geometry_options=options)
        database = pycolmap.Database.open(temporary)
        try:
            return int(database.num_verified_image_pairs())
        finally:
            database.close()


def _write_tables(pycolmap: Any, database: Any, graph: MatchGraph, options: CameraOptions) -> None:
    cameras: dict[Any, int] = {}
    ids = []
    for number, photo in enumerate(graph.photos):
        camera = _camera(pycolmap, photo, options)
        key = (camera.width, camera.height, camera.mean_focal_length(), None if options.shared else number)
        if key not in cameras:
            cameras[key] = database.write_camera(camera)
            camera.camera_id = cameras[key]
            rig = pycolmap.Rig()
            rig.add_ref_sensor(camera.sensor_id)
            database.write_rig(rig)
        ids.append(_write_image(pycolmap, database, photo.name, cameras[key]))
        points = photo.to_stored(graph.keypoints[number]) + PIXEL_CENTRE
        database.write_keypoints(ids[-1], points.astype(np.float32))
    for (first, second), matches in graph.matches.items():
        database.write_matches(ids[first], ids[second], matches)


def _write_image(pycolmap: Any, database: Any, name: str, camera_id: int) -> int:
    """Write an image and its frame, of which it is the only one; returns its id."""
    image = pycolmap.Image(name=name, keypoints=np.zeros((0, 2)), camera_id=camera_id)
    image.image_id = database.write_image(image)
    camera = database.read_camera(camera_id)
    frame = pycolmap.Frame()
    frame.rig_id = database.read_rig_with_sensor(camera.sensor_id).rig_id
    frame.add_data_id(image.data_id)
    frame.frame_id = database.write_frame(frame)
    image.frame_id = frame.frame_id
    database.update_image(image)
    return int(image.image_id)


def _camera(pycolmap: Any, photo: Photo, options: CameraOptions) -> Any:
    """The camera to begin with, with the focal length of the options, of EXIF, or 1.2 times the longer side."""
    height, width = photo.stored_size
    guess = None if options.focal is not None else _exif_focal(pycolmap, photo)
    focal = options.focal or guess or FOCAL_FACTOR * max(height, width)
    camera = pycolmap.Camera.create_from_model_name(0, options.model, focal, width, height)
    camera.has_prior_focal_length = options.focal is not None or guess is not None
    return camera


def _exif_focal(pycolmap: Any, photo: Photo) -> float | None:
    try:
        camera = pycolmap.infer_camera_from_image(photo.path)
    except (RuntimeError, ValueError):  # a format that COLMAP does not read
        return None
    return float(camera.mean_focal_length()) if camera.has_prior_focal_length else None


def map_photos(database: Path, photos: Path, output: Path) -> Any:
    """Reconstruct by COLMAP's incremental mapper; writes `sparse/0`, the largest model, `sparse/1`, … and `points.ply`.

    Args:
        database: COLMAP database with verified matches.
        photos: folder of the photos, which give the points their colours.
        output: folder to write to; no other process may use it.

    Returns:
        The models, as `pycolmap.Reconstruction`, the one with most photos first.
    """
    pycolmap = import_pycolmap()
    options = pycolmap.IncrementalPipelineOptions()
    options.min_model_size = MIN_MODEL
    options.random_seed = 0
    folder = output / UNFINISHED
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    try:
        folder.mkdir()
        with _silent(pycolmap), _errors_of_writing(folder):
            found = pycolmap.incremental_mapping(database, photos, folder, options)
        models = sorted(found.values(), key=lambda m: (-m.num_reg_images(), -m.num_points3D()))
        if not models:
            raise InputError(
                "no photo could be registered: photos must show the same scene from different places, and overlap"
            )
        fresh = folder / "sorted"
        with _errors_of_writing(output), atomic_path(output / "points.ply") as temporary:
            for number, model in enumerate(models):
                (fresh / str(number)).mkdir(parents=True)
                model.write_binary(fresh / str(number))
            models[0].export_PLY(temporary)
        shutil.rmtree(output / "sparse", ignore_errors=True)
        fresh.rename(output / "sparse")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return models


@contextmanager
def _errors_of_writing(path: Path) -> Iterator[None]:
    """COLMAP's own errors about a full disk are no `OSError`."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"COLMAP cannot write {path}, is the disk full? It says: {reason}") from error


@contextmanager
def _silent(pycolmap: Any) -> Iterator[None]:
    """COLMAP logs its progress and its errors on stderr; here it logs nothing."""
    level = pycolmap.logging.minloglevel
    pycolmap.logging.minloglevel = NOTHING
    try:
        yield
    finally:
        pycolmap.logging.minloglevel = level
