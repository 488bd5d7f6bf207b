"""Image files and arrays to 8-bit RGB `(H, W, 3)`, and back to files."""

import io
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...utils.arrays import Picture
from ...utils.errors import GOCorError, InputError, InputTypeError
from ...utils.files import PathLike, read_bytes, write_bytes_atomically
from ...utils.limits import check_pixels
from .containers import JPEG_SIGNATURE, WEBP_SIGNATURE, clean_jpeg, exif_orientation, webp_exif
from .headers import UNKNOWN, image_size
from .png import PNG_SIGNATURE, clean_png

# Suffixes of image files in a folder. If one image is there in several formats, the first of these is taken.
READABLE = (
    ".png", ".ppm", ".jpg", ".jpeg", ".pgm", ".bmp", ".webp", ".tif", ".tiff", ".jp2", ".pbm", ".pnm",
)  # fmt: skip
WRITABLE = (".png", ".jpg", ".jpeg")
TIFF_SIGNATURES = (b"II*\0", b"MM\0*")

_log_lock = threading.Lock()
_log_state = {"users": 0, "level": 0}


def image_files(paths: Iterable[Path]) -> list[Path]:
    """The image files among paths, by suffix, in their order; hidden files are left out."""
    return [p for p in paths if p.suffix.lower() in READABLE and not p.name.startswith(".") and p.is_file()]


def read_image(path: PathLike) -> Picture:
    """Read an image file as RGB `(H, W, 3)`: JPEG, PNG, WebP, TIFF, JPEG 2000, BMP, PPM, GIF, AVIF or HDR.

    The content determines the format, not the suffix. The picture is rotated upright by its EXIF orientation. Grey
    values are repeated three times, transparent pixels are blended with white, and 16 bits are scaled to 8 (0 to 65535
    become 0 to 255). Floating-point values are clipped to [0, 1]; NaN becomes 0. A missing file raises a
    FileNotFoundError. Any other file that is not a complete image, or that is too large (see `gocor.utils.limits`),
    raises an InputError. The one exception is damage in the middle of a JPEG, which its decoder conceals.
    """
    data = read_bytes(path)
    try:
        return decode_rgb(data)
    except GOCorError as error:
        raise InputError(f"cannot read {path}: {error}") from None


def to_rgb(image: NDArray[Any]) -> Picture:
    """Convert an image array to a new 8-bit RGB array `(H, W, 3)`.

    Args:
        image: `(H, W)` or `(H, W, 1)` grey, `(H, W, 3)` RGB, or `(H, W, 4)` RGBA with straight alpha, which is blended
            with white. The dtype is bool, uint8, uint16 (0 to 65535) or floating point in [0, 1]; values slightly
            outside are clipped, values far outside are an error, NaN becomes 0.
    """
    if not isinstance(image, np.ndarray):
        raise InputTypeError(f"an image must be a NumPy array, got {type(image).__name__}")
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)) or image.size == 0:
        raise InputError(f"an image must have shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), got {image.shape}")
    levels = _to_255(image if image.ndim == 3 else image[..., None])
    if levels.shape[2] == 4:
        alpha = levels[..., 3:].astype(np.float32) / 255
        levels = 255 - (255 - levels[..., :3].astype(np.float32)) * alpha
    if levels.dtype != np.uint8:
        levels = np.rint(levels).astype(np.uint8)
    return np.array(np.broadcast_to(levels, (*levels.shape[:2], 3)), order="C")


def write_image(path: PathLike, rgb: Picture, *, quality: int = 95) -> None:
    """Write 8-bit RGB `(H, W, 3)` as PNG or JPEG, by the suffix of the path; on failure nothing is left at `path`.

    Args:
        path: the file.
        rgb: the picture.
        quality: quality of a JPEG, from 0 to 100.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in WRITABLE:
        raise InputError(f"cannot write {path}: the suffix must be one of {', '.join(WRITABLE)}")
    try:
        data = encode_image(rgb, suffix, quality=quality)
    except GOCorError as error:
        raise InputError(f"cannot write {path}: {error}") from None
    write_bytes_atomically(path, data)


def encode_image(rgb: Picture, suffix: str = ".png", *, quality: int = 95) -> bytes:
    """The content of an image file for 8-bit RGB `(H, W, 3)`; see `write_image`."""
    if not isinstance(rgb, np.ndarray) or rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.size == 0:
        got = f"{rgb.dtype} {rgb.shape}" if isinstance(rgb, np.ndarray) else type(rgb).__name__
        raise InputError(f"expected a uint8 array (H, W, 3), got {got}; see to_rgb")
    import cv2

    return encode(rgb[..., ::-1], suffix, [] if suffix == ".png" else [cv2.IMWRITE_JPEG_QUALITY, quality])


def decode_rgb(data: bytes) -> Picture:
    """The content of an image file as 8-bit RGB `(H, W, 3)`; see `read_image`."""
    pixels = decode_upright(data)
    if pixels.dtype.kind == "f":
        pixels = np.clip(np.nan_to_num(pixels, nan=0.0), 0, 1)
    if data.startswith(TIFF_SIGNATURES) and _is_premultiplied(pixels):
        pixels = pixels[..., :3] + (255 - pixels[..., 3:])
    return to_rgb(pixels)


def decode_upright(data: bytes) -> NDArray[Any]:
    """The content of an image file as an upright picture, `(H, W)` or `(H, W, C)` in RGB(A) order, in its own dtype."""
    pixels, orientation = decode(data)
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if pixels.ndim == 3 and pixels.shape[2] in (3, 4) else pixels


def decode(data: bytes) -> tuple[NDArray[Any], int]:
    """Pixels in their own dtype, `(H, W)` or `(H, W, C)` in BGR(A) order, and the EXIF orientation, 1 to 8.

    The size is checked before anything is decoded. Nothing is printed on stderr: libjpeg and libpng print what they
    find in damaged files, so Pillow, which silences libjpeg, decodes JPEG, and OpenCV gets PNG only after a check.
    """
    check_pixels(*image_size(data))
    exif = b""
    if data.startswith(JPEG_SIGNATURE):
        data, exif = clean_jpeg(data)
        pixels = _decode_jpeg(data)
    else:
        if data.startswith(PNG_SIGNATURE):
            data, exif = clean_png(data)
        elif WEBP_SIGNATURE.match(data):
            exif = webp_exif(data)
        pixels = _decode_opencv(data)
    if pixels is None or pixels.size == 0:
        raise InputError(UNKNOWN)
    return pixels, exif_orientation(exif)


def _decode_opencv(data: bytes) -> NDArray[Any] | None:
    import cv2

    try:
        with _silent_opencv():
            return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        return None


def _decode_jpeg(data: bytes) -> NDArray[Any] | None:
    from PIL import JpegImagePlugin

    try:
        with JpegImagePlugin.JpegImageFile(io.BytesIO(data)) as image:
            pixels = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    except MemoryError:
        raise
    except Exception:  # a damaged file can raise anything
        return None
    return pixels if pixels.ndim == 2 else pixels[..., ::-1]


def encode(pixels: NDArray[Any], suffix: str = ".png", options: list[int] | None = None) -> bytes:
    """The content of an image file; pixels are in OpenCV's order BGR(A), 8 or 16 bits."""
    import cv2

    try:
        with _silent_opencv():
            done, data = cv2.imencode(suffix, np.ascontiguousarray(pixels), options or [])
    except cv2.error as error:
        raise InputError(f"OpenCV cannot write {pixels.shape} as {suffix}: {error.err}") from None
    if not done:
        raise InputError(f"OpenCV cannot write {pixels.shape} as {suffix}")
    return data.tobytes()


def _to_255(image: NDArray[Any]) -> NDArray[Any]:
    """Pixels on the scale from 0 to 255, as uint8 or as float32 that is not yet rounded."""
    if image.dtype == np.bool_:
        return image.astype(np.uint8) * np.uint8(255)
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind == "u" and image.dtype.itemsize == 2:  # in either byte order
        return image.astype(np.float32) / 257
    if image.dtype.kind != "f":
        raise InputTypeError(f"an image must be bool, uint8, uint16 or floating point in [0, 1], got {image.dtype}")
    image = np.where(np.isnan(image), 0, image)
    if image.min() < -0.5 or image.max() > 1.5:
        found = f"{image.min():.4g} to {image.max():.4g}"
        raise InputError(f"a floating-point image must lie in [0, 1], got {found}: divide by 255 or cast to uint8?")
    return np.clip(image, 0, 1).astype(np.float32) * 255


def _is_premultiplied(pixels: NDArray[Any]) -> bool:
    """Whether the colours of a TIFF are multiplied by alpha: OpenCV does so if the file declares what alpha is."""
    rgba = pixels.ndim == 3 and pixels.shape[2] == 4 and pixels.dtype == np.uint8
    return rgba and bool((pixels[..., :3] <= pixels[..., 3:]).all())


@contextmanager
def _silent_opencv() -> Iterator[None]:
    """Silence OpenCV's messages on stderr. The level is global, so the last thread to leave restores it."""
    import cv2

    with _log_lock:
        if _log_state["users"] == 0:
            _log_state["level"] = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        _log_state["users"] += 1
    try:
        yield
    finally:
        with _log_lock:
            _log_state["users"] -= 1
            if _log_state["users"] == 0:
                cv2.utils.logging.setLogLevel(_log_state["level"])
