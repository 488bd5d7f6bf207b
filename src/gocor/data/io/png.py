"""PNG files: checked, and reduced to the chunks that hold pixels.

OpenCV decodes PNG by libpng, which prints warnings about other chunks and about damage on stderr.
"""

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...utils.archives import MAX_DEFLATE
from ...utils.errors import InputError
from .containers import TRUNCATED
from .headers import DAMAGED

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
PALETTE = 3  # colour type
TRANSPARENT_BYTES = {0: (2,), 2: (6,)}  # sizes of the chunk tRNS, by colour type
KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"eXIf")
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # Adam7
MAX_FILTER = 4
PIECE_IN, PIECE_OUT = 1 << 16, 1 << 20  # bytes that are inflated at once
MAX_CHUNK = 1 << 30


def clean_png(data: bytes) -> tuple[bytes, bytes]:
    """A PNG file without the chunks that do not matter for its pixels, and its EXIF block, empty if it has none.

    A truncated or damaged file is an error. Only one defect is mended: data after the end of the pixels is left out.
    """
    chunks: dict[bytes, list[bytes]] = {kind: [] for kind in KEPT}
    for number, (kind, body) in enumerate(_chunks(data)):
        if (kind == b"IHDR") != (number == 0):
            raise InputError(DAMAGED)
        if kind in chunks:
            chunks[kind].append(body)
    header, pixels = chunks[b"IHDR"][0], b"".join(chunks[b"IDAT"])
    passes = _check_header(header, len(data))
    depth, colour = header[8:10]
    parts = [(b"IHDR", header)]
    if colour == PALETTE:
        parts.append((b"PLTE", _palette(chunks[b"PLTE"], 1 << depth)))
    for transparent in chunks[b"tRNS"][:1]:
        allowed = range(1, (1 << depth) + 1) if colour == PALETTE else TRANSPARENT_BYTES.get(colour, ())
        if len(transparent) in allowed:
            parts.append((b"tRNS", transparent))
    pixels = pixels[: _check_pixels(pixels, passes)]
    parts += [(b"IDAT", pixels[at : at + MAX_CHUNK]) for at in range(0, len(pixels), MAX_CHUNK)]
    exif = chunks[b"eXIf"][0] if chunks[b"eXIf"] else b""
    return PNG_SIGNATURE + b"".join(_chunk(*part) for part in (*parts, (b"IEND", b""))), exif


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of every chunk before the last, IEND; those that are critical have a valid checksum."""
    at, view = len(PNG_SIGNATURE), memoryview(data)
    while True:
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise InputError(TRUNCATED)
        kind = data[at + 4 : at + 8]
        critical = kind[:1].isupper()
        if critical and zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise InputError(DAMAGED)
        if kind == b"IEND":
            return
        yield kind, data[at + 8 : end - 4]
        at = end


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


def _check_header(header: bytes, file_size: int) -> list[tuple[int, int]]:
    """Check the header; returns the number of rows and the bytes of a row, with its filter, for each pass."""
    if len(header) != 13:
        raise InputError(DAMAGED)
    width, height, depth, colour, compression, filtering, interlaced = struct.unpack(">IIBBBBB", header)
    if depth not in DEPTHS.get(colour, ()) or compression or filtering or interlaced > 1 or not width or not height:
        raise InputError(DAMAGED)
    bits = depth * CHANNELS[colour]
    if width * height * bits // 8 > MAX_DEFLATE * file_size:
        raise InputError(f"{DAMAGED}: its header promises {width}×{height} pixels")
    passes = []
    for left, top, right, down in PASSES if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // right), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            passes.append((rows, 1 + (columns * bits + 7) // 8))
    return passes


def _palette(found: list[bytes], entries: int) -> bytes:
    """The colours of a palette, filled up to the number that pixels can refer to."""
    if not found or not found[0] or len(found[0]) % 3:
        raise InputError(DAMAGED)
    return found[0][: 3 * entries].ljust(3 * entries, b"\0")


def _check_pixels(packed: bytes, passes: list[tuple[int, int]]) -> int:
    """Inflate the pixels piece by piece and check the filter of every row; returns the number of packed bytes."""
    inflater, done = zlib.decompressobj(), 0
    ends = np.cumsum([rows * stride for rows, stride in passes]).tolist()
    for piece in _inflate(inflater, packed):
        for (_, stride), start, end in zip(passes, [0, *ends], ends, strict=False):
            first = max(start, done)
            first += (start - first) % stride  # the first row that begins in this piece
            filters = piece[first - done : max(0, end - done) : stride]
            if filters.size and filters.max() > MAX_FILTER:
                raise InputError(DAMAGED)
        done += len(piece)
        if done > ends[-1]:
            raise InputError(f"{DAMAGED}: it has more pixels than its header promises")
    if done < ends[-1] or not inflater.eof:
        raise InputError(TRUNCATED)
    return len(packed) - len(inflater.unused_data)


def _inflate(inflater: "zlib._Decompress", packed: bytes) -> Iterator[NDArray[np.uint8]]:
    """Unpack in pieces of at most `PIECE_OUT` bytes. What follows the end is left in `inflater.unused_data`."""
    try:
        for at in range(0, len(packed), PIECE_IN):
            pending, full = packed[at : at + PIECE_IN], True
            while (pending or full) and not inflater.eof:
                piece = inflater.decompress(pending, PIECE_OUT)
                pending, full = inflater.unconsumed_tail, len(piece) == PIECE_OUT
                yield np.frombuffer(piece, np.uint8)
            if inflater.eof:
                inflater.decompress(packed[at + PIECE_IN :])  # joins the data after the end
                return
    except zlib.error:
        raise InputError(DAMAGED) from None
