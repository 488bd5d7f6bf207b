"""Cut-out objects, kept on the device as premultiplied RGBA so that one operator gathers a batch of them."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...utils.arrays import Picture
from ...utils.checks import check_count
from ...utils.errors import InputError
from ...utils.files import PathLike
from .coco import AnnotatedPhoto, mask_of, read_annotations
from .sources import ImageFile, evenly_spaced, list_images, read_all, read_pixels, read_rgb

MARGIN = 8  # transparent pixels around a stored object: one pixel remains after three halvings
MIN_SIDE = 8  # pixels of the shorter side, after shrinking
OPAQUE = 0.95  # Pixels with at least this alpha show the colour of the object alone.
EDGE_WINDOW = 9  # pixels: width of the neighbourhood whose opaque pixels give an edge its colour


@dataclass(frozen=True)
class CutOut:
    """An object: premultiplied RGBA `(H, W, 4)`, and the scale that it was resized by, at most 1."""

    rgba: NDArray[np.uint8]
    factor: float


class ObjectStore:
    """Cut-out objects on a device.

    Attributes:
        pixels: `(N, 4, S, S)` uint8, premultiplied RGBA; each object is centred in its square.
        sizes: `(N, 2)`, stored heights and widths.
        factors: `(N,)`, scales that the objects were resized by, at most 1.
        areas: `(N,)`, pixels that the stored objects cover.
        centres: `(N, 2)`, centres `(x, y)` of the objects in their squares.
    """

    def __init__(self, cutouts: Sequence[CutOut], *, device: torch.device | str = "cpu") -> None:
        self.device = torch.empty(0, device=device).device
        self.sizes = np.array([cutout.rgba.shape[:2] for cutout in cutouts])
        self.factors = np.array([cutout.factor for cutout in cutouts])
        self.areas = np.array([cutout.rgba[..., 3].sum() / 255 for cutout in cutouts])
        side = (int(self.sizes.max()) + 2 * MARGIN + 7) // 8 * 8  # can be halved three times
        pixels = np.zeros((len(cutouts), 4, side, side), np.uint8)
        for into, cutout in zip(pixels, cutouts, strict=True):
            height, width = cutout.rgba.shape[:2]
            top, left = (side - height) // 2, (side - width) // 2
            into[:, top : top + height, left : left + width] = cutout.rgba.transpose(2, 0, 1)
        self.centres = np.stack([(side - n) // 2 + (n - 1) / 2 for n in self.sizes[:, ::-1].T], -1)
        self.pixels: Tensor = torch.from_numpy(pixels).to(self.device)

    @classmethod
    def open(
        cls,
        source: PathLike | Sequence[PathLike],
        *,
        images: PathLike | Sequence[PathLike] | None = None,
        device: torch.device | str = "cpu",
        limit: int | None = None,
        max_side: int = 256,
        min_area: float = 1300,
        threads: int = 8,
    ) -> Self:
        """Read objects from images with transparency, or cut them out of the photos of a COCO annotation file.

        Files that cannot be used are skipped with one `SkippedFilesWarning`.

        Args:
            source: folders or zip files of RGBA images, one object each; or a COCO annotation file, `.json`.
            images: folder or zip file of the annotated photos; only with an annotation file.
            device: device to keep the objects on.
            limit: largest number of files, or of annotated photos, evenly spaced among all.
            max_side: larger objects are resized to this longer side.
            min_area: objects that cover fewer pixels are left out.
            threads: number of threads that decode images.
        """
        check_count("max_side", max_side, MIN_SIDE)
        check_count("threads", threads, 1)
        sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
        annotated = len(sources) == 1 and Path(sources[0]).suffix.lower() == ".json"
        if annotated != (images is not None):
            raise InputError("images= must be given with a COCO annotation file (.json), and only with one")
        found: Iterable[tuple[Any, list[CutOut]]]
        if images is not None:
            photos = evenly_spaced(read_annotations(sources[0], images, min_area=min_area), limit)
            read_photo = partial(_cut_annotated, max_side=max_side, min_area=min_area)
            found = read_all(photos, read_photo, threads=threads, what="annotated photos")
        else:
            read_file = partial(_cut_transparent, max_side=max_side, min_area=min_area)
            found = read_all(evenly_spaced(list_images(sources), limit), read_file, threads=threads, what="objects")
        return cls([cutout for _, cutouts in found for cutout in cutouts], device=device)

    def __len__(self) -> int:
        return len(self.sizes)


def _cut_transparent(file: ImageFile, *, max_side: int, min_area: float) -> list[CutOut]:
    """The object of an image with transparency."""
    pixels = read_pixels(file)
    if pixels.ndim != 3 or pixels.shape[2] != 4 or pixels.dtype not in (np.uint8, np.uint16):
        raise InputError(f"an object must be an RGBA image of 8 or 16 bits, got {pixels.dtype} {pixels.shape}")
    rgba = pixels.astype(np.float32) / np.float32(np.iinfo(pixels.dtype).max)
    return [_cut(np.rint(255 * rgba[..., :3]).astype(np.uint8), rgba[..., 3], max_side, min_area)]


def _cut_annotated(photo: AnnotatedPhoto, *, max_side: int, min_area: float) -> list[CutOut]:
    """The objects of an annotated photo; it is an error if none of them can be used."""
    rgb = read_rgb(photo.file)
    cutouts, problem = [], None
    for shape in photo.segmentations:
        try:
            cutouts.append(_cut(rgb, mask_of(shape, *rgb.shape[:2]), max_side, min_area))
        except InputError as error:
            problem = error
    if problem is not None and not cutouts:
        raise problem
    return cutouts


def _cut(rgb: Picture, alpha: NDArray[np.float32], max_side: int, min_area: float) -> CutOut:
    """Crop an object to its bounding box, clean its edges, and resize it."""
    import cv2

    covered = alpha > 0
    if alpha.sum() < min_area:
        raise InputError(f"the object covers {alpha.sum():.0f} pixels, fewer than {min_area:g}")
    rows, columns = np.flatnonzero(covered.any(1)), np.flatnonzero(covered.any(0))
    box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    rgba = clean_cutout(rgb[box], np.ascontiguousarray(alpha[box]))
    height, width = rgba.shape[:2]
    factor = min(1.0, max_side / max(height, width))
    if min(height, width) * factor < MIN_SIDE:
        raise InputError(f"an object of {height}×{width} pixels is too thin: {MIN_SIDE} must remain after resizing")
    if factor < 1:
        size = (round(factor * width), round(factor * height))
        rgba = np.asarray(cv2.resize(rgba, size, interpolation=cv2.INTER_AREA))
    return CutOut(rgba, factor)


def clean_cutout(rgb: NDArray[np.uint8], alpha: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Convert an object to premultiplied RGBA `(H, W, 4)` and remove its old background from the edges.

    Pixels at the edge of a mask contain some of the old background, whether the mask is hard or soft. So the mask is
    eroded by a pixel and blurred, and pixels that are not opaque take the mean colour of the opaque pixels around them.

    Args:
        rgb: `(H, W, 3)`.
        alpha: `(H, W)` in [0, 1].
    """
    import cv2

    shrunk = cv2.erode(alpha, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=0)
    soft = np.minimum(cv2.GaussianBlur(shrunk, (5, 5), 0.8, borderType=cv2.BORDER_CONSTANT), alpha)
    opaque = (soft >= OPAQUE).astype(np.float32)
    if not opaque.any():
        opaque = (soft >= soft.max()).astype(np.float32)
    near = cv2.blur(opaque, (EDGE_WINDOW, EDGE_WINDOW), borderType=cv2.BORDER_CONSTANT)[..., None]
    total = cv2.blur(rgb * opaque[..., None], (EDGE_WINDOW, EDGE_WINDOW), borderType=cv2.BORDER_CONSTANT)
    colours = total / np.maximum(near, 1e-6)
    colours = np.where(opaque[..., None] > 0, rgb, np.where(near > 1e-3, colours, rgb))
    rgba = np.concatenate([colours * soft[..., None], 255 * soft[..., None]], -1)
    return np.asarray(np.rint(rgba).clip(0, 255).astype(np.uint8))
