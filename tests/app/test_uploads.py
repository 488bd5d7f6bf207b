"""Images that visitors give."""

import struct
import zlib

import numpy as np
import pytest

from gocor.app import uploads
from gocor.app.uploads import read_upload
from gocor.data.io import write_image
from gocor.utils.errors import InputError


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_header(width, height):
    """A PNG file that states a size and has next to no pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0"))


def test_large_images_are_shrunk(tmp_path):
    write_image(tmp_path / "a.png", np.zeros((30, 2500, 3), np.uint8))
    assert read_upload("reference", str(tmp_path / "a.png")).shape == (25, 2048, 3)
    write_image(tmp_path / "b.png", np.full((30, 20, 3), 7, np.uint8))
    assert (read_upload("query", str(tmp_path / "b.png")) == 7).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no image", "the query image cannot be read: it is damaged"),
        (b"", "the query image cannot be read"),
        (png_header(9000, 9000), "at most 64 million pixels"),
        (png_header(100_000, 100_000), "at most 64 million pixels"),
        (png_header(20, 20), "the query image cannot be read"),
    ],
)
def test_broken_and_huge_files(tmp_path, data, message):
    (tmp_path / "x.png").write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_upload("query", str(tmp_path / "x.png"))


def test_files_that_are_too_large_or_missing(tmp_path, monkeypatch):
    write_image(tmp_path / "a.png", np.zeros((30, 20, 3), np.uint8))
    monkeypatch.setattr(uploads, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="at most 0 MiB"):
        read_upload("query", str(tmp_path / "a.png"))
    with pytest.raises(InputError, match="not on the server any more"):
        read_upload("query", str(tmp_path / "b.png"))
    with pytest.raises(InputError, match="there is no reference image yet"):
        read_upload("reference", None)
