"""The limit on what a file may decode to, which is checked before memory is allocated.

A small file can promise a huge content: a PNG of a megabyte may decode to gigabytes. The limit holds for the decoded
content of every file that is read: pixels of an image, values of a flow file, a member of a zip file, a checkpoint, and
the text of a CSV, JSON or TOML file. The environment variable `GOCOR_MAX_BYTES` sets another limit.
"""

import os
import re

from .errors import InputError

VARIABLE = "GOCOR_MAX_BYTES"
DEFAULT = 2 << 30
PIXEL = 8  # bytes that a pixel counts at least, because its flow takes as many
MAX_SIDE = 1_000_000  # pixels of an image side: the limit of libpng
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def max_bytes() -> int:
    """The largest number of bytes that a file may decode to."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT
    found = re.fullmatch(r"(\d{1,18})([KMG]?)", text, re.ASCII | re.IGNORECASE)
    if found is None or not int(found[1]):
        raise InputError(f"{VARIABLE} must be a number of bytes such as 4294967296 or 4G, got {text!r}")
    return int(found[1]) * UNITS[found[2].upper()]


def check_bytes(count: int, what: str) -> None:
    """Raise unless `count` bytes are within the limit; `what` is the subject of the message, such as `"the file"`."""
    limit = max_bytes()
    if count > limit:
        raise InputError(f"{what} takes {count:,} bytes, the limit is {limit:,}: set {VARIABLE} to raise it")


def check_pixels(width: int, height: int, depth: int = PIXEL) -> None:
    """Raise unless an image is within the limit.

    Args:
        width: width of the image, at least 1.
        height: height of the image, at least 1.
        depth: bytes of a decoded pixel. A pixel counts 8 bytes at least.
    """
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise InputError(f"its header promises {width}×{height} pixels, a side must have 1 to {MAX_SIDE:,}")
    limit, depth = max_bytes(), max(depth, PIXEL)
    if width * height * depth > limit:
        raise InputError(
            f"an image of {width}×{height} pixels is too large: at {depth} bytes a pixel, the limit of {limit:,} bytes "
            f"allows {limit // depth:,} pixels; set {VARIABLE} to raise it"
        )
