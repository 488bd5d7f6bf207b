import struct
import subprocess
import sys
import threading
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from gocor.data.io import encode_image, read_image, to_rgb, write_image
from gocor.data.io.png import PNG_SIGNATURE


def picture(height=12, width=17, channels=3, dtype=np.uint8, seed=0):
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def encoded(suffix, rgb, options=()):
    pixels = rgb[..., [2, 1, 0, 3][: rgb.shape[2]]] if rgb.ndim == 3 else rgb
    return cv2.imencode(suffix, pixels, list(options))[1].tobytes()


def saved(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


def exif(orientation, order):
    """A directory of two tags, the second of which is the orientation."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    entries = struct.pack(order + "HHIHH", 0x0100, 3, 1, 7, 0) + struct.pack(
        order + "HHIHH", 0x0112, 3, 1, orientation, 0
    )
    return head + struct.pack(order + "H", 2) + entries + struct.pack(order + "I", 0)


def jpeg_with(block, jpeg):
    body = b"Exif\0\0" + block
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


def png_chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_with(block, png):
    return png[:33] + png_chunk(b"eXIf", block) + png[33:]  # after the signature and IHDR


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_turns_a_jpeg_as_opencv_does(tmp_path, orientation, order):
    data = jpeg_with(exif(orientation, order), encoded(".jpg", picture()))
    ours = read_image(saved(tmp_path, "a.jpg", data))
    assert ours.shape == ((12, 17, 3) if orientation < 5 else (17, 12, 3))
    theirs = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    assert np.array_equal(ours, theirs)


def test_exif_six_is_a_quarter_turn_to_the_right(tmp_path):
    """The expected picture does not depend on OpenCV's EXIF support; colours and alpha are rotated together."""
    rgba = picture(channels=4)
    rgba[..., 3] = np.where(picture(channels=1, seed=1) > 99, 255, 0)
    ours = read_image(saved(tmp_path, "a.png", png_with(exif(6, ">"), encoded(".png", rgba))))
    assert np.array_equal(ours, np.rot90(np.where(rgba[..., 3:] == 255, rgba[..., :3], 255), -1))


@pytest.mark.skipif(not hasattr(cv2, "imencodeWithMetadata"), reason="this OpenCV cannot write EXIF to WebP")
def test_exif_turns_a_webp(tmp_path):
    block = np.frombuffer(exif(8, "<"), np.uint8)
    data = cv2.imencodeWithMetadata(".webp", picture(), [cv2.IMAGE_METADATA_EXIF], [block])[1].tobytes()
    upright = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    assert np.array_equal(read_image(saved(tmp_path, "a.webp", data)), np.rot90(upright[..., ::-1]))


@pytest.mark.parametrize("block", [b"", b"II", b"II*\0\xff\xff\xff\xff", exif(0, "<"), exif(9, ">"), exif(6, "<")[:30]])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # by Pillow
def test_a_broken_exif_block_is_ignored(tmp_path, block):
    plain = read_image(saved(tmp_path, "a.jpg", encoded(".jpg", picture())))
    assert np.array_equal(read_image(saved(tmp_path, "b.jpg", jpeg_with(block, encoded(".jpg", picture())))), plain)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tiff", ".ppm"])
def test_colours_come_as_rgb(tmp_path, suffix):
    assert np.array_equal(read_image(saved(tmp_path, f"ä 図{suffix}", encoded(suffix, picture()))), picture())


@pytest.mark.parametrize("suffix", [".png", ".tiff"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_file_and_an_array_give_the_same_result(tmp_path, suffix, dtype, channels):
    image = picture(channels=channels, dtype=dtype)
    ours = read_image(saved(tmp_path, "a" + suffix, encoded(suffix, image)))
    assert np.array_equal(ours, to_rgb(image))
    assert ours.flags.c_contiguous
    assert ours.flags.writeable


def test_premultiplied_colours(tmp_path):
    """OpenCV premultiplies TIFF files that declare what their fourth channel is, as Pillow's do."""
    image = pytest.importorskip("PIL.Image")
    rgba = picture(channels=4)
    image.fromarray(rgba).save(tmp_path / "a.tiff")
    assert np.abs(read_image(tmp_path / "a.tiff").astype(int) - to_rgb(rgba)).max() <= 1


@pytest.mark.parametrize("suffix", [".tiff", ".hdr"])
def test_floating_point_files_are_clipped(tmp_path, suffix):
    image = np.full((4, 5, 3), 0.5, np.float32)
    image[0], image[1] = 30.0, 0.0
    if suffix == ".tiff":
        image[2, 0], image[2, 1], image[2, 2], image[2, 3] = np.nan, np.inf, -np.inf, -7
    out = read_image(saved(tmp_path, "a" + suffix, encoded(suffix, image)))
    assert (out[0] == 255).all()
    assert (out[1] == 0).all()
    assert (out[3] == 128).all()
    if suffix == ".tiff":
        assert out[2, :, 0].tolist() == [0, 255, 0, 0, 128]


def test_a_grey_floating_point_file(tmp_path):
    image = np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5)
    assert np.array_equal(read_image(saved(tmp_path, "a.tiff", encoded(".tiff", image))), to_rgb(image))


@settings(max_examples=30, deadline=None)
@given(
    image=st.one_of(
        arrays.arrays(np.uint16, (3, 4, 3)),
        arrays.arrays(np.uint8, st.sampled_from([(3, 4), (3, 4, 1), (3, 4, 3)])),
        arrays.arrays(np.bool_, st.sampled_from([(3, 4), (3, 4, 1)])),
        arrays.arrays(np.float32, (3, 4, 3), elements=st.floats(0, 1, width=32)),
    )
)
def test_arrays_are_scaled_and_rounded(image):
    full = {"b": 1, "u": np.iinfo(image.dtype).max if image.dtype.kind == "u" else 0, "f": 1}[image.dtype.kind]
    expected = image.astype(np.float64) / full * 255
    expected = np.broadcast_to(expected if image.ndim == 3 else expected[..., None], (3, 4, 3))
    ours = to_rgb(image)
    assert ours.dtype == np.uint8
    assert np.abs(ours - expected).max() <= 0.5 + 1e-4
    assert not np.shares_memory(ours, image)


def test_transparency_is_laid_over_white():
    pixels = np.array([[[0, 100, 200, 255], [0, 100, 200, 0], [0, 100, 200, 51]]], np.uint8)
    assert to_rgb(pixels).tolist() == [[[0, 100, 200], [255, 255, 255], [204, 224, 244]]]
    assert np.array_equal(to_rgb(pixels.astype(np.uint16) * 257), to_rgb(pixels))
    assert np.array_equal(to_rgb((pixels.astype(np.uint16) * 257).astype(">u2")), to_rgb(pixels))
    assert np.array_equal(to_rgb(pixels / 255), to_rgb(pixels))


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (np.full((2, 2), 255.0), ValueError, r"must lie in \[0, 1\], got 255 to 255: divide by 255"),
        (np.full((2, 2), -1.0, np.float16), ValueError, r"must lie in \[0, 1\], got -1 to -1"),
        (np.full((2, 2), np.inf), ValueError, "got inf to inf"),
        (np.zeros((2, 2), int), TypeError, "got int64"),
        (np.zeros((2, 2, 2), np.uint8), ValueError, r"got \(2, 2, 2\)"),
        (np.zeros(4, np.uint8), ValueError, r"got \(4,\)"),
        (np.zeros((0, 4, 3), np.uint8), ValueError, r"got \(0, 4, 3\)"),
        ([[1]], TypeError, "must be a NumPy array, got list"),
    ],
)
def test_bad_arrays(image, error, message):
    with pytest.raises(error, match=message):
        to_rgb(image)


def test_slightly_out_of_range_is_clipped_and_nan_is_black():
    assert to_rgb(np.array([[-0.01, 1.02, np.nan]]))[0, :, 0].tolist() == [0, 255, 0]


def one_line(error):
    return "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp", ".tiff", ".ppm", ".gif", ".hdr"])
def test_a_file_cut_short_is_an_error(tmp_path, capfd, suffix):
    image = picture(6, 5) if suffix != ".hdr" else picture(6, 5).astype(np.float32) / 255
    data = encoded(suffix, image)
    read_image(saved(tmp_path, "whole" + suffix, data))
    every_byte = range(len(data)) if suffix in (".jpg", ".png") else range(0, len(data), max(1, len(data) // 40))
    for length in every_byte:
        path = saved(tmp_path, "cut" + suffix, data[:length])
        with pytest.raises(ValueError, match=r"cut\.") as error:
            read_image(path)
        assert one_line(error)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("options", [(), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)])
def test_the_end_of_a_thumbnail_is_not_the_end_of_a_jpeg(tmp_path, options):
    """Its EXIF block holds a whole JPEG, end marker included, in front of the picture that is cut short."""
    thumbnail, jpeg = encoded(".jpg", picture(4, 4)), encoded(".jpg", picture(), options)
    data = jpeg_with(exif(1, "<") + thumbnail, jpeg)
    assert read_image(saved(tmp_path, "a.jpg", data)).shape == (12, 17, 3)
    assert read_image(saved(tmp_path, "b.jpg", data + b"appended by a phone")).shape == (12, 17, 3)
    with pytest.raises(ValueError, match="cut short"):
        read_image(saved(tmp_path, "c.jpg", data[:-60]))


def test_damaged_and_foreign_files(tmp_path, capfd):
    png = encoded(".png", picture())
    flipped = bytearray(png)
    flipped[60] ^= 0x10
    huge = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 40000, 40000, 16, 6, 0, 0, 0))
    none = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 0, 4, 8, 2, 0, 0, 0))
    for data, message in [
        (b"", "is empty: copy or download it again"),
        (b"%PDF-1.7 and so on", "of an unknown format, convert it to PNG or JPEG"),
        (bytes(flipped), "the file is damaged"),
        (PNG_SIGNATURE + huge + png[33:], "40000×40000 pixels is too large"),
        (PNG_SIGNATURE + none + png[33:], "its header promises 0×4 pixels"),
        (PNG_SIGNATURE, "cut short"),
        (b"\xff\xd8\xff", "cut short"),
        (b"P6\n100000 100000\n255\n", "damaged"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            read_image(saved(tmp_path, "bad.bin", data))
        assert "bad.bin" in str(error.value)
        assert one_line(error)
    assert capfd.readouterr().err == ""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(suffix=st.sampled_from([".jpg", ".png", ".webp", ".tiff", ".gif"]), data=st.data())
def test_any_damage_gives_an_image_or_one_clear_error(tmp_path, suffix, data):
    content = bytearray(encoded(suffix, picture(6, 5)))
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[position] = data.draw(st.integers(0, 255))
    path = saved(tmp_path, "a" + suffix, content)
    message = ""
    try:
        assert read_image(path).dtype == np.uint8
    except ValueError as error:
        message = str(error)
    assert message == "" or (str(path) in message and "\n" not in message)


def test_signed_integers_are_an_error(tmp_path):
    for dtype in (np.int16, np.int32):
        path = saved(tmp_path, "a.tiff", encoded(".tiff", np.ones((3, 4, 3), dtype)))
        with pytest.raises(ValueError, match=rf"a\.tiff.*{np.dtype(dtype)}"):
            read_image(path)


def test_paths_without_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.png does not exist"):
        read_image(tmp_path / "no.png")
    with pytest.raises(ValueError, match="is a folder"):
        read_image(str(tmp_path))


def test_opencv_s_log_level_is_restored_by_the_last_of_many_threads(tmp_path):
    path, before = saved(tmp_path, "a.png", encoded(".png", picture())), cv2.utils.logging.getLogLevel()
    threads = [threading.Thread(target=lambda: [read_image(path) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cv2.utils.logging.getLogLevel() == before


def test_writing(tmp_path):
    image = picture(40, 50)
    write_image(tmp_path / "ö.png", image)
    assert np.array_equal(read_image(tmp_path / "ö.png"), image)
    smooth = cv2.resize(picture(3, 3), (64, 48), interpolation=cv2.INTER_LINEAR)
    for name in ("a.jpg", "b.JPEG"):
        write_image(str(tmp_path / name), smooth)
        assert np.abs(read_image(tmp_path / name).astype(int) - smooth).mean() < 4
    write_image(tmp_path / "small.jpg", smooth, quality=10)
    assert (tmp_path / "small.jpg").stat().st_size < (tmp_path / "a.jpg").stat().st_size
    write_image(tmp_path / "view.png", image[::2, ::-1])
    assert np.array_equal(read_image(tmp_path / "view.png"), image[::2, ::-1])


@pytest.mark.parametrize(
    ("name", "image", "message"),
    [
        ("a.gif", picture(), "suffix must be one of .png, .jpg, .jpeg"),
        ("a.png", picture(channels=4), r"expected a uint8 array \(H, W, 3\), got uint8 \(12, 17, 4\); see to_rgb"),
        ("a.png", picture() / 255, "got float64"),
        ("a.png", "picture", "got str"),
        ("a.jpg", np.zeros((1, 70000, 3), np.uint8), "cannot write"),
    ],
)
def test_failed_writing_leaves_nothing(tmp_path, name, image, message):
    with pytest.raises(ValueError, match=message):
        write_image(tmp_path / name, image)
    assert not list(tmp_path.iterdir())


def test_the_content_of_an_image_file(tmp_path):
    smooth = cv2.resize(picture(3, 3), (64, 48), interpolation=cv2.INTER_LINEAR)
    for name, options in (("a.png", {}), ("a.jpg", {"suffix": ".jpg", "quality": 40})):
        write_image(tmp_path / name, smooth, quality=40)
        assert encode_image(smooth, **options) == (tmp_path / name).read_bytes()
    with pytest.raises(ValueError, match="expected a uint8 array"):
        encode_image(smooth / 255)


def test_opencv_is_not_imported_before_it_is_needed():
    code = "import sys, gocor.data.io, gocor.matching; sys.exit('cv2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_decoders_print_nothing(tmp_path, capfd):
    png, jpg = encoded(".png", picture(64, 48)), bytearray(encoded(".jpg", picture(64, 48)))
    profile, late = png_chunk(b"iCCP", b"x\0\0abc"), png.index(b"IDAT") - 4
    assert read_image(saved(tmp_path, "a.png", png[:33] + profile + png[33:])).shape == (64, 48, 3)
    assert read_image(saved(tmp_path, "a.png", png[:33] + png_chunk(b"tRNS", b"x") + png[33:])).shape == (64, 48, 3)
    for pixels in (b"\x09" * 64 * 145, bytes(63 * 145), bytes(65 * 145)):  # wrong filters, too few rows, too many
        body = png_chunk(b"IDAT", zlib.compress(pixels)) + png_chunk(b"IEND", b"")
        with pytest.raises(ValueError, match=r"damaged|cut short"):
            read_image(saved(tmp_path, "a.png", png[:late] + body))
    at = len(jpg) - 300
    jpg[at : at + 100] = bytes(100)
    assert read_image(saved(tmp_path, "a.jpg", bytes(jpg))).shape == (64, 48, 3)
    assert capfd.readouterr().err == ""


def test_data_after_the_end_of_the_pixels_is_left_out(tmp_path):
    image = picture(5, 4)
    png = encoded(".png", image)
    start = png.index(b"IDAT") - 4
    length = int.from_bytes(png[start : start + 4], "big")
    longer = png_chunk(b"IDAT", png[start + 8 : start + 8 + length] + b"more") + png[start + 12 + length :]
    assert np.array_equal(read_image(saved(tmp_path, "a.png", png[:start] + longer)), image)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16"])
def test_all_kinds_of_png_are_read_as_pillow_reads_them(tmp_path, mode):
    image = Image.fromarray(picture(9, 7)).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    image.save(tmp_path / "a.png")
    expected = np.asarray(image.convert("RGBA" if "A" in mode else "RGB" if mode != "I;16" else "I"))
    expected = to_rgb(expected if mode != "I;16" else expected.astype(np.uint16))
    assert np.array_equal(read_image(tmp_path / "a.png"), expected)


def test_a_jpeg_of_too_many_scans(tmp_path):
    jpg = encoded(".jpg", picture())
    with pytest.raises(ValueError, match="it has 301 scans, at most 256 are decoded"):
        read_image(saved(tmp_path, "a.jpg", jpg[:-2] + b"\xff\xda" * 300 + jpg[-2:]))
