"""The photos of a collection, and the orientation in which COLMAP reads them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data.io.images import decode, image_files
from ..utils.arrays import Array
from ..utils.errors import GOCorError, InputError
from ..utils.files import PathLike, read_bytes

MIN_PHOTOS = 3  # two photos determine a model, but no track of COLMAP's default settings


@dataclass(frozen=True)
class Photo:
    """One photo of a collection.

    Attributes:
        path: the file.
        size: height and width of the upright picture, as `read_image` returns it.
        orientation: EXIF orientation of the file, 1 (upright) to 8. COLMAP and hloc ignore it.
    """

    path: Path
    size: tuple[int, int]
    orientation: int = 1

    @property
    def name(self) -> str:
        """Name of the file, by which COLMAP knows the photo."""
        return self.path.name

    @property
    def stored_size(self) -> tuple[int, int]:
        """Height and width of the file's pixels, before they are rotated upright."""
        return self.size if self.orientation < 5 else (self.size[1], self.size[0])

    def to_stored(self, points: Array) -> Array:
        """Points `(N, 2)` of the upright picture → of the file's pixels; centres of pixels are at integers."""
        x, y = points.T
        if self.orientation in (2, 3, 6, 7):
            x = self.size[1] - 1 - x
        if self.orientation in (3, 4, 7, 8):
            y = self.size[0] - 1 - y
        return np.stack([y, x] if self.orientation >= 5 else [x, y], 1)


def find_photos(folder: PathLike) -> list[Photo]:
    """The photos of a folder, by name; at least three."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: give the folder of the photos")
    paths = image_files(sorted(Path(folder).iterdir()))
    if len(paths) < MIN_PHOTOS:
        raise InputError(f"a reconstruction needs {MIN_PHOTOS} photos or more, {folder} has {len(paths)}")
    for path in paths:
        try:
            path.name.encode()
        except UnicodeEncodeError:  # COLMAP's database cannot hold such a name
            raise InputError(f"the name of {path} is not UTF-8: rename the photo") from None
    return [_read_photo(path) for path in paths]


def _read_photo(path: Path) -> Photo:
    try:
        pixels, orientation = decode(read_bytes(path))
    except GOCorError as error:
        raise InputError(f"cannot read {path}: {error}") from None
    height, width = pixels.shape[:2]
    return Photo(path, (height, width) if orientation < 5 else (width, height), orientation)
