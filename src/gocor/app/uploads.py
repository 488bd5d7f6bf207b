"""Images that visitors give: checked before they are decoded, and shrunk to a size that the page can show."""

import io
from pathlib import Path

import cv2
import PIL.Image

from ..data.io.images import decode_rgb
from ..utils.arrays import Picture
from ..utils.errors import GOCorError, InputError

MAX_BYTES = 40 * 2**20
MAX_PIXELS = 64_000_000
MAX_SIDE = 2048  # pixels of the longer side; larger images are shrunk


def read_upload(name: str, path: str | None) -> Picture:
    """Read an image that a visitor gave, as RGB `(H, W, 3)` whose longer side has at most `MAX_SIDE` pixels.

    Args:
        name: "reference" or "query", for messages.
        path: of the uploaded file, or `None` if there is none.
    """
    if not path:
        raise InputError(f"there is no {name} image yet: upload, paste or take one, or choose an example")
    file = Path(path)
    if not file.is_file():
        raise InputError(f"the {name} image is not on the server any more: upload it again")
    if file.stat().st_size > MAX_BYTES:
        raise InputError(f"the {name} image must have at most {MAX_BYTES // 2**20} MiB")
    data = file.read_bytes()
    check_pixels(name, data)
    try:
        return shrink(decode_rgb(data))
    except GOCorError as error:
        raise InputError(f"the {name} image cannot be read: {error}") from None


def check_pixels(name: str, data: bytes) -> None:
    """Check the number of pixels that the header of an image file states, before they take memory."""
    try:
        with PIL.Image.open(io.BytesIO(data)) as image:
            width, height = image.size
    except PIL.Image.DecompressionBombError:
        width, height = MAX_PIXELS, MAX_PIXELS
    except Exception:  # a damaged file can raise anything
        raise InputError(
            f"the {name} image cannot be read: it is damaged, or neither PNG, JPEG, WebP nor TIFF"
        ) from None
    if width * height > MAX_PIXELS:
        raise InputError(f"the {name} image must have at most {MAX_PIXELS // 10**6} million pixels")


def shrink(picture: Picture) -> Picture:
    """The picture, reduced to a longer side of `MAX_SIDE` if it is larger."""
    height, width = picture.shape[:2]
    scale = MAX_SIDE / max(height, width)
    if scale >= 1:
        return picture
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)  # type: ignore[return-value]
