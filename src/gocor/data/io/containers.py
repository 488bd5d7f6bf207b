"""JPEG, PNG and WebP files: truncated and damaged ones are detected, and the EXIF orientation is read.

Decoders would fill in the missing part of a truncated file, or complain on stderr.
"""

import struct
import zlib

from ...utils.errors import InputError

TRUNCATED = "the file is cut short, copy or download it again"
DAMAGED = "the file is damaged, copy or download it again"
MAX_DEFLATE = 1032  # Deflate cannot compress by a larger factor: a header that promises more data is wrong.

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type


def read_exif(data: bytes) -> bytes:
    """The EXIF block of an image file, empty if it has none; a truncated or damaged file is an error.

    Files of other formats than JPEG, PNG and WebP are not checked.
    """
    if data.startswith(b"\xff\xd8"):
        return _read_jpeg(data)
    if data.startswith(PNG_SIGNATURE):
        return _read_png(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _read_webp(data)
    return b""


def exif_orientation(block: bytes) -> int:
    """Orientation of an EXIF block, from 1 (upright) to 8; 1 if the block has none or is damaged."""
    if not block:
        return 1
    from PIL import ExifTags, Image

    exif = Image.Exif()
    try:
        exif.load(block)
        value = exif.get(ExifTags.Base.Orientation, 1)
    except Exception:  # A damaged block can raise anything, and the picture is readable without it.
        return 1
    return int(value) if value in range(1, 9) else 1


def _read_jpeg(data: bytes) -> bytes:
    exif, at = b"", 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":  # up to the first scan
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1 : at + 2] == b"\xe1" and data[at + 4 : at + 10] == b"Exif\0\0" and not exif:
            exif = data[at + 10 : at + 2 + length]
        at += 1 if data[at + 1 : at + 2] == b"\xff" else 2 + length  # fill bytes may precede a marker
    if data.rfind(b"\xff\xd9", at) < 0:  # The end marker of a thumbnail stands before the first scan.
        raise InputError(TRUNCATED)
    return exif


def _read_png(data: bytes) -> bytes:
    exif, at, view = b"", len(PNG_SIGNATURE), memoryview(data)
    while True:
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise InputError(TRUNCATED)
        kind = data[at + 4 : at + 8]
        critical = kind[:1].isupper()
        if critical and zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
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


def _read_webp(data: bytes) -> bytes:
    end, at = 8 + int.from_bytes(data[4:8], "little"), 12
    if end > len(data):
        raise InputError(TRUNCATED)
    while at < end:
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"EXIF":
            return data[at + 8 : at + 8 + size].removeprefix(b"Exif\0\0")
        at += 8 + size + size % 2
    return b""
