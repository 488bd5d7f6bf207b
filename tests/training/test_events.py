"""TensorBoard's files, read back by a reader of our own and, where it is installed, by TensorBoard's."""

import struct

import pytest

from gocor.training.events import EventWriter, masked_crc


def read_records(data):
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        content = data[12 : 12 + length]
        assert struct.unpack("<I", data[8:12])[0] == masked_crc(data[:8])
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked_crc(content)
        yield content
        data = data[16 + length :]


def read_varint(data):
    value = shift = 0
    while True:
        byte, data = data[0], data[1:]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data


def read_fields(data):
    fields = []
    while data:
        key, data = read_varint(data)
        wire = key & 7
        if wire == 0:
            value, data = read_varint(data)
        elif wire == 2:
            length, data = read_varint(data)
            value, data = data[:length], data[length:]
        else:
            size = 8 if wire == 1 else 4
            value, data = struct.unpack("<d" if wire == 1 else "<f", data[:size])[0], data[size:]
        fields.append((key >> 3, value))
    return fields


def written(folder):
    (file,) = folder.glob("events.out.tfevents.*")
    return [read_fields(record) for record in read_records(file.read_bytes())]


def test_checksum():
    """CRC-32C of "123456789" is e3069283, the check value of its definition."""
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_what_is_written_is_read_back(tmp_path):
    with EventWriter(tmp_path, step=300) as writer:
        writer.scalars(301, {"train/loss": 0.5, "train/epe": 1e6})
        writer.picture(302, "validation", b"\x89PNG", (64, 320))
    version, session, scalars, picture = (dict(event) for event in written(tmp_path))
    assert version[3] == b"brain.Event:2"
    assert (session[2], read_fields(session[7])) == (300, [(1, 1)])
    assert scalars[2] == 301
    values = [dict(read_fields(value)) for _, value in read_fields(scalars[5])]
    assert values == [{1: b"train/loss", 2: 0.5}, {1: b"train/epe", 2: 1e6}]
    (value,) = (dict(read_fields(value)) for _, value in read_fields(picture[5]))
    assert value[1] == b"validation"
    assert read_fields(value[4]) == [(1, 64), (2, 320), (3, 3), (4, b"\x89PNG")]


def test_tensorboard_reads_it(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with EventWriter(tmp_path) as writer:
        writer.scalars(7, {"loss": 0.25})
    read = loader.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(7, 0.25)]
