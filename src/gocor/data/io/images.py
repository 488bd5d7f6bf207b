"""Image files and arrays to 8-bit RGB `(H, W, 3)`, and back to files."""

import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...utils.errors import InputError, InputTypeError
from ...utils.files import PathLike, read_bytes, write_bytes_atomically

# Of files that are taken for images in a folder; where one image is there in several, the first wins.
READABLE = (
    ".png", ".ppm", ".jpg", ".jpeg", ".pgm", ".bmp", ".webp", ".tif", ".tiff", ".jp2", ".pbm", ".pnm",
)  # fmt: skip
WRITABLE = (".png", ".jpg", ".jpeg")
CUT_SHORT = "the file is cut short, copy or download it again"
DAMAGED = "the file is damaged, copy or download it again"

# Deflate cannot shrink data by more than this: a PNG that promises more pixels has a wrong header.
MAX_DEFLATE = 1032
PNG_SIGNATURE, PNG_CHANNELS = b"\x89PNG\r\n\x1a\n", {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
TIFF_SIGNATURES = (b"II*\0", b"MM\0*")

_log_lock = threading.Lock()
_log_state = {"users": 0, "level": 0}


def read_image(path: PathLike) -> NDArray[np.uint8]:
    """Any image file that OpenCV can decode, as RGB `(H, W, 3)`.

    The picture is turned as its EXIF tag says. Grey is repeated three times, transparency laid over white, 16 bits
    scaled to 8 (0 to 65535 become 0 to 255); floating-point pixels are clipped to [0, 1], NaN read as 0. A missing file
    is a FileNotFoundError, anything else that is not a whole image a ValueError. Broken pixels in the middle of a JPEG
    are all that passes unnoticed: its decoder conceals them.
    """
    data = read_bytes(path)
    try:
        pixels = upright(*decode(data))
        if pixels.dtype.kind == "f":
            pixels = np.clip(np.nan_to_num(pixels, nan=0.0), 0, 1)
        if pixels.ndim == 3 and pixels.shape[2] in (3, 4):
            pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]
        if data.startswith(TIFF_SIGNATURES) and _premultiplied(pixels):
            pixels = pixels[..., :3] + (255 - pixels[..., 3:])
        return to_rgb(pixels)
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def to_rgb(image: NDArray[Any]) -> NDArray[np.uint8]:
    """An image array as a new 8-bit RGB array `(H, W, 3)`.

    Args:
        image: `(H, W)` or `(H, W, 1)` grey, `(H, W, 3)` RGB or `(H, W, 4)` RGBA with straight alpha, laid over white;
            bool, uint8, uint16 (0 to 65535), or floating point in [0, 1]: values a little outside are clipped, values
            far outside are an error, NaN becomes 0.
    """
    if not isinstance(image, np.ndarray):
        raise InputTypeError(f"an image must be a NumPy array, got {type(image).__name__}")
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)) or image.size == 0:
        raise InputError(f"an image must have shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), got {image.shape}")
    levels = _levels(image if image.ndim == 3 else image[..., None])
    if levels.shape[2] == 4:
        alpha = levels[..., 3:].astype(np.float32) / 255
        levels = 255 - (255 - levels[..., :3].astype(np.float32)) * alpha
    if levels.dtype != np.uint8:
        levels = np.rint(levels).astype(np.uint8)
    return np.array(np.broadcast_to(levels, (*levels.shape[:2], 3)), order="C")


def write_image(path: PathLike, rgb: NDArray[np.uint8], *, quality: int = 95) -> None:
    """Write 8-bit RGB `(H, W, 3)` as PNG or JPEG, by the path's suffix; on failure nothing is left at `path`.

    `quality`, 0 to 100, is JPEG's.
    """
    import cv2

    suffix = Path(path).suffix.lower()
    if suffix not in WRITABLE:
        raise InputError(f"cannot write {path}: the suffix must be one of {', '.join(WRITABLE)}")
    if not isinstance(rgb, np.ndarray) or rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.size == 0:
        got = f"{rgb.dtype} {rgb.shape}" if isinstance(rgb, np.ndarray) else type(rgb).__name__
        raise InputError(f"cannot write {path}: expected a uint8 array (H, W, 3), got {got}; see to_rgb")
    options = [] if suffix == ".png" else [cv2.IMWRITE_JPEG_QUALITY, quality]
    write_bytes_atomically(path, encode(suffix, rgb[..., ::-1], options))


def decode(data: bytes) -> tuple[NDArray[Any], int]:
    """Pixels as a file holds them, `(H, W)` or `(H, W, C)` in OpenCV's order BGR(A), and EXIF's orientation, 1 to 8."""
    import cv2

    # First: it finds files that are cut short, of which decoders would guess the rest, or complain on stderr.
    orientation = _orientation(_exif(data))
    try:
        with _quiet():
            pixels: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        pixels = None
    if pixels is None or pixels.size == 0:
        raise InputError("the file is damaged or of a format unknown to OpenCV, convert it to PNG or JPEG")
    return pixels, orientation


def encode(suffix: str, pixels: NDArray[Any], options: list[int] | None = None) -> bytes:
    """The content of an image file; pixels in OpenCV's order BGR(A)."""
    import cv2

    try:
        with _quiet():
            done, data = cv2.imencode(suffix, np.ascontiguousarray(pixels), options or [])
    except cv2.error as error:
        raise InputError(f"OpenCV cannot write {pixels.shape} as {suffix}: {error.err}") from None
    if not done:
        raise InputError(f"OpenCV cannot write {pixels.shape} as {suffix}")
    return data.tobytes()


def _levels(image: NDArray[Any]) -> NDArray[Any]:
    """Pixels on the scale 0 to 255: uint8, or float32 yet to be rounded."""
    if image.dtype == np.bool_:
        return image.astype(np.uint8) * np.uint8(255)
    if image.dtype == np.uint8:
        return image
    if image.dtype == np.uint16:
        return image.astype(np.float32) / 257
    if image.dtype.kind != "f":
        raise InputTypeError(f"an image must be bool, uint8, uint16 or floating point in [0, 1], got {image.dtype}")
    image = np.where(np.isnan(image), 0, image)
    if image.min() < -0.5 or image.max() > 1.5:
        found = f"{image.min():.4g} to {image.max():.4g}"
        raise InputError(f"a floating-point image must lie in [0, 1], got {found}: divide by 255 or cast to uint8?")
    return np.clip(image, 0, 1).astype(np.float32) * 255


def _premultiplied(pixels: NDArray[Any]) -> bool:
    """OpenCV hands out 8-bit TIFF colours multiplied by alpha where the file declares it, else as they are."""
    rgba = pixels.ndim == 3 and pixels.shape[2] == 4 and pixels.dtype == np.uint8
    return rgba and bool((pixels[..., :3] <= pixels[..., 3:]).all())


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """The picture upright, from EXIF's orientation 1 to 8."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in (2, 3, 6, 7) else pixels


def _orientation(exif: bytes) -> int:
    """Tag 0x0112 of an EXIF block's first directory, 1 (upright) where there is none."""
    if exif[:2] not in (b"II", b"MM"):
        return 1
    unpack = struct.Struct(("<" if exif[:2] == b"II" else ">") + "HHIH").unpack_from
    order: Any = "little" if exif[:2] == b"II" else "big"
    start = int.from_bytes(exif[4:8], order)
    count = int.from_bytes(exif[start : start + 2], order)
    for at in range(start + 2, min(start + 2 + 12 * count, len(exif) - 11), 12):
        tag, _, _, value = unpack(exif, at)
        if tag == 0x0112 and 1 <= value <= 8:
            return int(value)
    return 1


def _exif(data: bytes) -> bytes:
    """The EXIF block of a JPEG, PNG or WebP file, empty where there is none; an error where the file is cut short."""
    if data.startswith(b"\xff\xd8"):
        return _jpeg_exif(data)
    if data.startswith(PNG_SIGNATURE):
        return _png_exif(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp_exif(data)
    return b""


def _jpeg_exif(data: bytes) -> bytes:
    exif, at = b"", 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":  # up to the first scan
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1 : at + 2] == b"\xe1" and data[at + 4 : at + 10] == b"Exif\0\0" and not exif:
            exif = data[at + 10 : at + 2 + length]
        at += 1 if data[at + 1 : at + 2] == b"\xff" else 2 + length  # markers may be preceded by filling
    if data.find(b"\xff\xd9", at) < 0:  # a thumbnail in the header has an end marker too: look behind it
        raise InputError(CUT_SHORT)
    return exif


def _png_exif(data: bytes) -> bytes:
    exif, at, view = b"", 8, memoryview(data)
    while True:
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise InputError(CUT_SHORT)
        kind = data[at + 4 : at + 8]
        if kind[:1].isupper() and zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise InputError(DAMAGED)
        if kind == b"IHDR":
            _check_png_header(data[at + 8 : end - 4], len(data))
        if kind == b"eXIf":
            exif = data[at + 8 : end - 4]
        if kind == b"IEND":
            return exif
        at = end


def _check_png_header(header: bytes, file_size: int) -> None:
    width, height, depth, colour = struct.unpack(">IIBB", header[:10].ljust(10, b"\0"))
    size = width * height * depth * PNG_CHANNELS.get(colour, 0) // 8
    if width == 0 or height == 0 or size > MAX_DEFLATE * file_size:
        raise InputError(f"{DAMAGED}: its header promises {width}×{height} pixels")


def _webp_exif(data: bytes) -> bytes:
    end, at = 8 + int.from_bytes(data[4:8], "little"), 12
    if end > len(data):
        raise InputError(CUT_SHORT)
    while at < end:
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"EXIF":
            return data[at + 8 : at + 8 + size].removeprefix(b"Exif\0\0")
        at += 8 + size + size % 2
    return b""


@contextmanager
def _quiet() -> Iterator[None]:
    """Without OpenCV's messages on stderr. The level is the process's: the last thread to leave restores it."""
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
