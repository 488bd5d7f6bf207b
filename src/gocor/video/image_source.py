"""Image sequences: a folder, or a pattern such as `frames/*.png`."""

import glob
import re
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..data.io import read_image
from ..data.io.images import image_files
from ..utils.arrays import Picture
from ..utils.errors import InputError
from ..utils.files import file_stamp
from .clip import Clip


class ImageSequence:
    """Image files in the order of the numbers in their names.

    Args:
        files: one for each frame.
        rate: frames per second.
    """

    def __init__(self, files: Sequence[Path], rate: Fraction) -> None:
        self.files, self.rate = sorted(files, key=_order), rate
        stems: dict[str, Path] = {}
        for path in self.files:
            if path.stem in stems:
                raise InputError(f"{stems[path.stem]} and {path} have the same name: give a pattern such as '*.png'")
            stems[path.stem] = path

    def scan(self) -> Clip:
        """See `Source.scan`. Pictures are read when they are needed; the first one gives the size."""
        height, width = read_image(self.files[0]).shape[:2]
        ticks = list(range(len(self.files)))
        return Clip(height=height, width=width, ticks=ticks, time_base=1 / self.rate, rate=self.rate)

    def frames(self, start: int = 0, only: Collection[int] | None = None) -> Iterator[tuple[int, Picture]]:
        """See `Source.frames`."""
        size = None
        for index in range(start, len(self.files)):
            if only is not None and index not in only:
                continue
            picture = read_image(self.files[index])
            if size is not None and picture.shape != size:
                found, expected = (f"{shape[1]}×{shape[0]}" for shape in (picture.shape, size))
                raise InputError(f"{self.files[index]}: frames must have one size, expected {expected}, got {found}")
            size = picture.shape
            yield index, picture

    def stamp(self) -> Any:
        """See `Source.stamp`."""
        return [file_stamp(path) for path in self.files]

    def name_of(self, index: int) -> str:
        """See `Source.name_of`: the name of the frame's own file."""
        return self.files[index].stem


def find_images(source: str) -> list[Path] | None:
    """Image files of a folder or of a pattern; `None` if the source is neither."""
    path = Path(source)
    if path.is_dir():
        files = list(path.iterdir())
    elif not path.exists() and glob.has_magic(source):
        files = [Path(name) for name in glob.glob(source)]
    else:
        return None
    images = image_files(files)
    if not images:
        raise InputError(f"{source} holds no images")
    return images


def _order(path: Path) -> list[Any]:
    """Key by which 2.png is before 10.png."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), part) if index % 2 else part for index, part in enumerate(parts)]
