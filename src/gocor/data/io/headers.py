"""Width, height and depth of an image, read from its header, so that its size is known before it is decoded."""

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from ...utils.errors import InputError
from ...utils.limits import PIXEL
from .containers import TRUNCATED, WEBP_SIGNATURE

DAMAGED = "the file is damaged, copy or download it again"
UNKNOWN = "the file is damaged or of an unknown format, convert it to PNG or JPEG"

PNM = re.compile(rb"P[1-6](?:\s|#[^\n]*\n)+(\d{1,10})(?:\s|#[^\n]*\n)+(\d{1,10})(?:\s|#)")
HDR_SIZE = re.compile(rb"[-+]([XY]) (\d{1,10})\b")
HDR_HEADER = 4096  # bytes in which a Radiance file states its size
JP2_SIZE = re.compile(rb"\xff\x4f\xff\x51..(.{36})", re.DOTALL)
AVIF_SIZE = re.compile(rb"ispe....(.{8})", re.DOTALL)
JPEG_FRAMES = {0xC0 + i for i in range(16)} - {0xC4, 0xC8, 0xCC}  # markers of a JPEG that are followed by its size
JPEG_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a segment
TIFF_VALUES = {1: "B", 3: "H", 4: "I", 16: "Q"}  # by type of a tag


class Size(NamedTuple):
    """Pixels of an image, and bytes of a decoded pixel."""

    width: int
    height: int
    depth: int = PIXEL


def image_size(data: bytes) -> Size:
    """Size of an image as its header states it; the formats are those that `read_image` reads.

    Where several places of a file state a size, the largest one counts.
    """
    for signature, size in FORMATS:
        if signature.match(data):
            try:
                return size(data)
            except struct.error:
                raise InputError(TRUNCATED) from None
            except (ValueError, KeyError):
                raise InputError(DAMAGED) from None
    raise InputError(UNKNOWN)


def _png(data: bytes) -> Size:
    return Size(*struct.unpack_from(">II", data, 16))


def _jpeg(data: bytes) -> Size:
    sizes, at = [], 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":  # up to the first scan
        marker = struct.unpack_from("B", data, at + 1)[0]
        if marker in JPEG_FRAMES:
            sizes.append(struct.unpack_from(">HH", data, at + 5))
        if marker in JPEG_ALONE:
            at += 2
        else:
            at += 1 if marker == 0xFF else 2 + struct.unpack_from(">H", data, at + 2)[0]  # fill bytes may precede
    return Size(max(width for _, width in sizes), max(height for height, _ in sizes))


def _webp(data: bytes) -> Size:
    sizes, at = [], 12
    while at + 8 <= len(data):
        kind, length = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body = data[at + 8 : at + 18]
        if kind == b"VP8X":
            sizes.append((1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")))
        elif kind == b"VP8L":
            bits = int.from_bytes(body[1:5], "little")
            sizes.append((1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)))
        elif kind == b"VP8 ":
            width, height = struct.unpack("<HH", body[6:10])
            sizes.append((width & 0x3FFF, height & 0x3FFF))
        at += 8 + length + length % 2
    return Size(max(width for width, _ in sizes), max(height for _, height in sizes))


def _bmp(data: bytes) -> Size:
    old = struct.unpack_from("<I", data, 14)[0] == 12
    width, height = struct.unpack_from("<HH" if old else "<ii", data, 18)
    return Size(width, abs(height))


def _gif(data: bytes) -> Size:
    return Size(*struct.unpack_from("<HH", data, 6))


def _pnm(data: bytes) -> Size:
    found = PNM.match(data)
    if found is None:
        raise InputError(DAMAGED)
    return Size(int(found[1]), int(found[2]))


def _jp2(data: bytes) -> Size:
    sizes = []
    for found in JP2_SIZE.finditer(data):
        _, right, bottom, left, top, *_, components = struct.unpack(">HIIIIIIIIH", found[1])
        sizes.append(Size(right - left, bottom - top, 4 * components))
    return Size(max(s.width for s in sizes), max(s.height for s in sizes), max(s.depth for s in sizes))


def _hdr(data: bytes) -> Size:
    sides = dict(HDR_SIZE.findall(data[:HDR_HEADER]))
    return Size(int(sides[b"X"]), int(sides[b"Y"]), 12)


def _avif(data: bytes) -> Size:
    sizes = [struct.unpack(">II", found[1]) for found in AVIF_SIZE.finditer(data)]
    return Size(max(width for width, _ in sizes), max(height for _, height in sizes))


def _tiff(data: bytes) -> Size:
    order = "<" if data[:2] == b"II" else ">"
    big = struct.unpack_from(order + "H", data, 2)[0] == 43
    start = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)[0]
    count = struct.unpack_from(order + ("Q" if big else "H"), data, start)[0]
    first, length, field = (start + 8, 20, "Q") if big else (start + 2, 12, "I")
    tags: dict[int, int] = {}
    for at in range(first, first + min(count, 4096) * length, length):
        tag, kind, values = struct.unpack_from(order + "HH" + field, data, at)
        if tag not in (256, 257, 258, 277, 322, 323) or kind not in TIFF_VALUES:
            continue
        code = f"{order}{min(values, 4096)}{TIFF_VALUES[kind]}"
        inside = at + 4 + struct.calcsize(field)
        if struct.calcsize(code) > struct.calcsize(field):
            inside = struct.unpack_from(order + field, data, inside)[0]
        tags[tag] = max(tags.get(tag, 0), *struct.unpack_from(code, data, inside), 0)
    width, height = max(tags[256], tags.get(322, 0)), max(tags[257], tags.get(323, 0))  # of the image, of a tile
    return Size(width, height, (tags.get(277, 1) * tags.get(258, 1) + 7) // 8)


FORMATS: tuple[tuple[re.Pattern[bytes], Callable[[bytes], Size]], ...] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), _png),
    (re.compile(rb"\xff\xd8"), _jpeg),
    (WEBP_SIGNATURE, _webp),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), _tiff),
    (re.compile(rb"P[1-6][\s#]"), _pnm),
    (re.compile(rb"BM"), _bmp),
    (re.compile(rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"), _jp2),
    (re.compile(rb"#\?R"), _hdr),
    (re.compile(rb"GIF8[79]a"), _gif),
    (re.compile(rb"....ftyp(?:avif|avis|mif1|miaf)", re.DOTALL), _avif),
)
