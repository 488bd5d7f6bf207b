"""TensorBoard's event files, scalars and PNG pictures, without TensorBoard.

A file is a sequence of TFRecords: length, its checksum, data, its checksum. The data are `Event` messages of protocol
buffers, of which only the fields named here are written.
"""

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
SESSION_START = 1


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


CRC_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """CRC-32C of data, turned and shifted as TFRecords want it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _field(number: int, value: int | float | bytes | str, *, wire: int) -> bytes:
    """One field of a message."""
    key = _varint(number << 3 | wire)
    if wire == VARINT:
        return key + _varint(int(value))
    if wire in (FIXED64, FIXED32):
        return key + struct.pack("<d" if wire == FIXED64 else "<f", value)
    data = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[arg-type]
    return key + _varint(len(data)) + data


class EventWriter:
    """Writes one event file.

    Args:
        folder: where to; the file is named as TensorBoard expects it.
        step: where the run begins or goes on. TensorBoard drops what older files of the folder say of later steps.
    """

    def __init__(self, folder: Path, *, step: int = 0) -> None:
        name = f"events.out.tfevents.{int(time.time())}.{os.getpid()}.gocor"
        self.file = (folder / name).open("ab")
        self._event(0, _field(3, "brain.Event:2", wire=BYTES))
        self._event(step, _field(7, _field(1, SESSION_START, wire=VARINT), wire=BYTES))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers by name, at a step."""
        summaries = (
            _field(1, tag, wire=BYTES) + _field(2, float(number), wire=FIXED32) for tag, number in values.items()
        )
        self._event(step, _field(5, b"".join(_field(1, s, wire=BYTES) for s in summaries), wire=BYTES))

    def picture(self, step: int, tag: str, png: bytes, size: tuple[int, int]) -> None:
        """An RGB picture, as the bytes of a PNG file, with its (height, width)."""
        image = _field(1, size[0], wire=VARINT) + _field(2, size[1], wire=VARINT) + _field(3, 3, wire=VARINT)
        image += _field(4, png, wire=BYTES)
        value = _field(1, tag, wire=BYTES) + _field(4, image, wire=BYTES)
        self._event(step, _field(5, _field(1, value, wire=BYTES), wire=BYTES))

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _event(self, step: int, content: bytes) -> None:
        data = _field(1, time.time(), wire=FIXED64) + _field(2, step, wire=VARINT) + content
        length = struct.pack("<Q", len(data))
        self.file.write(length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data)))
        self.file.flush()
