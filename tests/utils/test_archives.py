"""Zip files: the size of a member is checked before it is unpacked."""

import io
import struct
import tracemalloc
import zipfile

import pytest

from gocor.utils.archives import open_zip, read_member
from gocor.utils.limits import VARIABLE

METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]


def zipped(data, method=zipfile.ZIP_DEFLATED, promised=None):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("a", data)
    content = bytearray(stream.getvalue())
    if promised is not None:
        struct.pack_into("<I", content, content.index(b"PK\1\2") + 24, promised)
    return bytes(content)


def read(data):
    with open_zip(io.BytesIO(data)) as archive:
        return read_member(archive, "a")


@pytest.mark.parametrize("method", METHODS)
def test_members_are_read(method):
    data = bytes(range(256)) * 100
    assert read(zipped(data, method)) == data


@pytest.mark.parametrize("method", METHODS)
def test_a_member_beyond_the_limit_is_not_unpacked(monkeypatch, method):
    data = zipped(bytes(10**7), method)
    monkeypatch.setenv(VARIABLE, "1M")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="a takes 10,000,000 bytes, the limit is 1,048,576"):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_whose_size_cannot_be_trusted(method):
    data = zipped(bytes(10**7), method, promised=10)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"a is packed by method {method}: pack it again, by deflate"):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_damaged_archives(tmp_path):
    with pytest.raises(ValueError, match="the archive is damaged"):
        open_zip(io.BytesIO(b"nothing"))
    with pytest.raises(ValueError, match="promises 1000000000 bytes out of"):
        read(zipped(b"abc", promised=10**9))
    with pytest.raises(ValueError, match="is a folder"):
        open_zip(tmp_path)
    data = bytearray(zipped(bytes(range(256))))
    data[40:60] = bytes(20)
    with pytest.raises(ValueError, match="a cannot be unpacked"):
        read(bytes(data))
