"""Sizes of images from their headers, and the limit on them."""

import cv2
import numpy as np
import pytest
from PIL import Image

from gocor.data.io import read_image
from gocor.data.io.headers import image_size

SUFFIXES = [".png", ".jpg", ".webp", ".bmp", ".tiff", ".ppm", ".pgm", ".pbm", ".jp2", ".gif", ".avif", ".hdr"]


def encoded(suffix, height=37, width=50):
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)
    if suffix in (".pgm", ".pbm"):
        image = image[..., 0]
    try:
        done, data = cv2.imencode(suffix, image.astype(np.float32) / 255 if suffix == ".hdr" else image)
    except cv2.error:
        done = False
    if not done:
        pytest.skip(f"this OpenCV cannot write {suffix}")
    return data.tobytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_header_tells_the_size(suffix):
    assert image_size(encoded(suffix))[:2] == (50, 37)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_image_beyond_the_limit_is_not_decoded(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(encoded(suffix))
    assert read_image(path).shape == (37, 50, 3)
    monkeypatch.setenv("GOCOR_MAX_BYTES", str(37 * 50 * 8 - 1))
    monkeypatch.setattr(cv2, "imdecode", None)
    with pytest.raises(ValueError, match=r"50×37 pixels is too large: at (8|12) bytes a pixel, .*set GOCOR_MAX_BYTES"):
        read_image(path)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_depth_of_tiff_counts(dtype):
    data = cv2.imencode(".tiff", np.zeros((5, 6, 3), dtype))[1].tobytes()
    assert image_size(data) == (6, 5, 3 * np.dtype(dtype).itemsize)


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 50}, {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"}])
def test_kinds_of_webp(tmp_path, options):
    Image.fromarray(np.zeros((37, 50, 3), np.uint8)).save(tmp_path / "a.webp", **options)
    assert image_size((tmp_path / "a.webp").read_bytes())[:2] == (50, 37)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_header_cut_short_is_an_error(suffix):
    data = encoded(suffix)
    for length in range(24):
        with pytest.raises(ValueError, match=r"cut short|damaged") if length < 6 else _anything():
            image_size(data[:length])


class _anything:  # noqa: N801
    """A size, or one of the errors above."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return isinstance(error, ValueError)
