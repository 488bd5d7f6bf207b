"""COCO annotations: photos, their segmentations, and the masks of these."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...utils.documents import parse_json
from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from .sources import ImageFile, list_images

SUPERSAMPLING = 4  # Polygons are filled at this multiple of the resolution, for smooth edges.
MAX_SHIFT = 60  # bits of a compressed run length
MAX_CORNER = 1e6  # pixels; OpenCV's fixed-point coordinates end at 32 times as many
FRACTION_BITS = 4  # fraction bits of the fixed-point coordinates of OpenCV's polygons


@dataclass(frozen=True)
class AnnotatedPhoto:
    """A photo and the segmentations of its objects."""

    file: ImageFile
    segmentations: list[Any]

    def __str__(self) -> str:
        return str(self.file)


def read_annotations(path: PathLike, images: PathLike | Sequence[PathLike], *, min_area: float) -> list[AnnotatedPhoto]:
    """Read photos and the segmentations of their objects from an annotation file.

    Crowds, objects of fewer than `min_area` pixels, and photos that `images` does not contain are left out. It is an
    error if nothing is left.
    """
    data = read_bytes(path)
    try:
        content = parse_json(data)
        names = {image["id"]: Path(image["file_name"]).name for image in content["images"]}
        segmentations = defaultdict(list)
        for annotation in content["annotations"]:
            if not annotation.get("iscrowd", 0) and annotation["area"] >= min_area and annotation["image_id"] in names:
                segmentations[names[annotation["image_id"]]].append(annotation["segmentation"])
    except (InputError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, InputError) else repr(error)[:120]
        raise InputError(f"{path} does not hold COCO annotations of instances: {reason}") from None
    files = {Path(file.name).name: file for file in list_images(images)}
    found = [AnnotatedPhoto(files[name], shapes) for name, shapes in sorted(segmentations.items()) if name in files]
    if not found:
        message = f"{path} has objects of at least {min_area:g} pixels in {len(segmentations)} photos"
        raise InputError(f"{message}, none of which is in {images}: give the folder or zip of these photos")
    return found


def mask_of(segmentation: Any, height: int, width: int) -> NDArray[np.float32]:
    """Convert a COCO segmentation to alpha `(H, W)` in [0, 1]: polygons, or run lengths, compressed or not."""
    try:
        if not isinstance(segmentation, dict):
            return fill_polygons(segmentation, height, width)
        counts, size = segmentation["counts"], tuple(segmentation["size"])
        runs = np.array(uncompress(counts) if isinstance(counts, (str, bytes)) else counts, np.int64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, InputError) else repr(error)[:120]
        raise InputError(f"a segmentation must be a list of polygons or run lengths: {reason}") from None
    if size != (height, width):
        raise InputError(f"run lengths belong to {str(list(size))[:40]} pixels, the photo has {height}×{width}")
    return decode_runs(runs, height, width)


def decode_runs(counts: Sequence[int] | NDArray[np.int64], height: int, width: int) -> NDArray[np.float32]:
    """Decode run lengths, which alternate between zeros and ones, zeros first, column by column."""
    runs = np.asarray(counts, np.int64)
    pixels = height * width
    # Each is checked first, because the sum of huge numbers wraps around.
    if runs.ndim != 1 or (runs < 0).any() or (runs > pixels).any() or runs.sum() != pixels:
        found = sum(runs.ravel().tolist())
        raise InputError(f"run lengths must be positive; they add up to {found} pixels, the photo has {height}×{width}")
    values = np.repeat(np.arange(len(runs)) % 2, runs)
    return values.reshape(width, height).T.astype(np.float32)


def uncompress(text: str | bytes) -> list[int]:
    """Decode the run lengths of COCO's compressed text.

    A character holds six bits, as an offset from `0`: five bits of a number, lowest first, and a bit that is set if
    more follow. The highest bit of the last five is the sign. From the fourth number on, each is stored as the
    difference to the number two places before.
    """
    data = text.encode() if isinstance(text, str) else text
    counts: list[int] = []
    value = shift = 0
    for byte in data:
        chunk = byte - 48
        if not 0 <= chunk < 64:
            raise InputError(f"compressed run lengths hold the byte {byte}")
        value |= (chunk & 31) << shift
        shift += 5
        if shift > MAX_SHIFT:
            raise InputError(f"compressed run lengths hold a number of more than {MAX_SHIFT} bits")
        if not chunk & 32:
            if chunk & 16:
                value -= 1 << shift
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    return counts


def fill_polygons(polygons: Sequence[Sequence[float]], height: int, width: int) -> NDArray[np.float32]:
    """Fill the union of polygons `[x, y, x, y, ...]`, whose origin is the upper left corner of the first pixel."""
    import cv2

    mask = np.zeros((height, width), np.float32)
    for polygon in polygons:
        if len(polygon) < 6 or len(polygon) % 2:
            continue  # fewer than three corners enclose nothing
        corners = np.asarray(polygon, np.float64).reshape(-1, 2)
        if not (np.abs(corners) <= MAX_CORNER).all():
            raise InputError(f"the corners of a polygon must be finite and at most {MAX_CORNER:g}")
        left, top = np.clip(np.floor(corners.min(0)).astype(int), 0, (width - 1, height - 1))
        right, bottom = np.clip(np.ceil(corners.max(0)).astype(int), (left + 1, top + 1), (width, height))
        # OpenCV fills whole pixels, whose centres have integer coordinates; the mean over small ones is smooth.
        fine = np.zeros((SUPERSAMPLING * (bottom - top), SUPERSAMPLING * (right - left)), np.uint8)
        points = np.rint(((corners - (left, top)) * SUPERSAMPLING - 0.5) * (1 << FRACTION_BITS)).astype(np.int32)
        cv2.fillPoly(fine, points[None], 255, cv2.LINE_8, FRACTION_BITS)
        coarse = cv2.resize(fine, (right - left, bottom - top), interpolation=cv2.INTER_AREA)
        mask[top:bottom, left:right] = np.maximum(mask[top:bottom, left:right], coarse.astype(np.float32) / 255)
    return mask
