"""JPEG and WebP files: truncated ones are detected, because decoders would fill in the missing part; EXIF blocks."""

from ...utils.errors import InputError

TRUNCATED = "the file is cut short, copy or download it again"
JPEG_SIGNATURE = b"\xff\xd8"
MAX_SCANS = 256  # of a progressive JPEG; encoders write about ten, and the decoder passes over all pixels for each


def read_exif(data: bytes) -> bytes:
    """The EXIF block of a JPEG or WebP file, empty if it has none; a truncated file is an error.

    Files of other formats are not checked.
    """
    if data.startswith(JPEG_SIGNATURE):
        return _read_jpeg(data)
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
        length = max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
        if data[at + 1 : at + 2] == b"\xe1" and data[at + 4 : at + 10] == b"Exif\0\0" and not exif:
            exif = data[at + 10 : at + 2 + length]
        at += 1 if data[at + 1 : at + 2] == b"\xff" else 2 + length  # fill bytes may precede a marker
    if data.rfind(b"\xff\xd9", at) < 0:  # The end marker of a thumbnail stands before the first scan.
        raise InputError(TRUNCATED)
    scans = data.count(b"\xff\xda", at)
    if scans > MAX_SCANS:
        raise InputError(f"it has {scans} scans, at most {MAX_SCANS} are decoded: save it anew")
    return exif


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
