"""JPEG and WebP files: truncated ones are detected, because decoders would fill in the missing part; EXIF blocks."""

import re
from typing import Literal

from ...utils.errors import InputError

TRUNCATED = "the file is cut short, copy or download it again"
JPEG_SIGNATURE = b"\xff\xd8"
WEBP_SIGNATURE = re.compile(rb"RIFF....WEBP", re.DOTALL)
# Segments with comments and metadata. Those of JFIF (E0) and Adobe (EE), which define the colours, are kept.
JPEG_DROPPED = {bytes([0xE0 + i]) for i in range(1, 16)} - {b"\xee"} | {b"\xfe"}
ORIENTATION = 0x112  # tag of EXIF
MAX_SCANS = 256  # scans of a progressive JPEG; encoders write about ten, and each is a pass over all pixels


def clean_jpeg(data: bytes) -> tuple[bytes, bytes]:
    """A JPEG file without the segments that do not matter for its pixels, and its EXIF block, empty if it has none.

    A truncated file is an error.
    """
    exif, kept, at = b"", [data[:2]], 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":  # up to the first scan
        marker, length = data[at + 1 : at + 2], max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
        if marker == b"\xff":  # fill bytes may precede a marker
            at += 1
            continue
        segment = data[at : at + 2 + length]
        if marker == b"\xe1" and segment[4:10] == b"Exif\0\0" and not exif:
            exif = segment[10:]
        if marker not in JPEG_DROPPED:
            kept.append(segment)
        at += 2 + length
    if data.rfind(b"\xff\xd9", at) < 0:  # The end marker of a thumbnail stands before the first scan.
        raise InputError(TRUNCATED)
    scans = data.count(b"\xff\xda", at)
    if scans > MAX_SCANS:
        raise InputError(f"it has {scans} scans, at most {MAX_SCANS} are decoded: save it again")
    return b"".join([*kept, data[at:]]), exif


def exif_orientation(block: bytes) -> int:
    """Orientation of an EXIF block, from 1 (upright) to 8; 1 if the block has none or is damaged."""
    order: Literal["little", "big"] = "little" if block[:2] == b"II" else "big"
    at = int.from_bytes(block[4:8], order)
    for start in range(at + 2, at + 2 + 12 * int.from_bytes(block[at : at + 2], order), 12):
        if int.from_bytes(block[start : start + 2], order) == ORIENTATION:
            value = int.from_bytes(block[start + 8 : start + 10], order)
            return value if value in range(1, 9) else 1
    return 1


def webp_exif(data: bytes) -> bytes:
    """The EXIF block of a WebP file, empty if it has none; a truncated file is an error."""
    end, at = 8 + int.from_bytes(data[4:8], "little"), 12
    if end > len(data):
        raise InputError(TRUNCATED)
    while at < end:
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"EXIF":
            return data[at + 8 : at + 8 + size].removeprefix(b"Exif\0\0")
        at += 8 + size + size % 2
    return b""
