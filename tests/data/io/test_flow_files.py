import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gocor.data.io import read_flow, read_image, write_flow
from gocor.ops.warp import inside_mask, warp

SUFFIXES = [".flo", ".png", ".pfm", ".npz"]
REAL = Path(__file__).parents[3].parent / "shared" / "data" / "eval"
property_test = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def flows(draw, largest):
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    flow = draw(arrays.arrays(np.float32, (2, *shape), elements=st.floats(-largest, largest, width=32)))
    return flow, draw(arrays.arrays(np.bool_, shape))


def saved(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


def sample(seed=0, height=5, width=7):
    generator = np.random.default_rng(seed)
    flow = generator.normal(0, 20, (2, height, width)).astype(np.float32)
    return flow, generator.random((height, width)) > 0.3


def content(folder, suffix, flow=None, valid=None):
    if flow is None:
        flow, valid = sample()
    write_flow(folder / f"content{suffix}", flow, valid)
    return (folder / f"content{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", [".flo", ".pfm", ".npz", ".FLO"])
@property_test
@given(pair=flows(2.0**29))
def test_round_trips_are_exact(tmp_path, suffix, pair):
    flow, valid = pair
    write_flow(tmp_path / f"a{suffix}", flow, valid)
    ours, known = read_flow(tmp_path / f"a{suffix}")
    assert (ours.dtype, known.dtype) == (np.float32, np.bool_)
    assert np.array_equal(known, valid)
    assert np.array_equal(ours, flow * valid)


@property_test
@given(pair=flows(511.0))
def test_kitti_rounds_to_a_64th(tmp_path, pair):
    flow, valid = pair
    write_flow(tmp_path / "a.png", flow, valid)
    ours, known = read_flow(tmp_path / "a.png")
    assert np.array_equal(known, valid)
    assert np.abs(ours - flow * valid).max() <= 1 / 128
    write_flow(tmp_path / "b.png", ours, known)
    assert np.array_equal(read_flow(tmp_path / "b.png")[0], ours)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_validity_is_by_default_where_the_flow_is_finite(tmp_path, suffix):
    flow = np.ones((2, 2, 3), np.float64)
    flow[0, 0, 0], flow[1, 0, 1], flow[0, 1, 2] = np.nan, -np.inf, 2e9
    write_flow(tmp_path / f"a{suffix}", flow)
    ours, valid = read_flow(tmp_path / f"a{suffix}")
    assert valid.tolist() == [[False, False, True], [True, True, False]]
    assert np.array_equal(ours, np.stack([valid, valid]))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_other_dtypes_are_written_as_float32(tmp_path, dtype):
    flow = np.arange(12).reshape(2, 2, 3).astype(dtype)
    if dtype == np.float16:
        flow[0, 0, 0] = np.inf  # The bound of 1e9 must not become infinite in comparisons with float16.
    for suffix in SUFFIXES:
        write_flow(tmp_path / f"a{suffix}", flow)
        ours, valid = read_flow(tmp_path / f"a{suffix}")
        assert np.array_equal(ours[:, valid], flow[:, valid])
        assert valid.all() == (dtype != np.float16)


def test_flo_holds_what_middlebury_says(tmp_path):
    values = np.arange(12, dtype="<f4").reshape(2, 3, 2)
    values[1, 2, 0] = 1e10
    path = saved(tmp_path, "a.flo", b"PIEH" + struct.pack("<ii", 3, 2) + values.tobytes())
    flow, valid = read_flow(path)
    assert flow[:, 0, 1].tolist() == [2, 3]
    assert valid.tolist() == [[True] * 3, [True, True, False]]
    write_flow(tmp_path / "b.flo", flow, valid)
    assert (tmp_path / "b.flo").read_bytes()[:12] == path.read_bytes()[:12]
    assert np.frombuffer((tmp_path / "b.flo").read_bytes(), "<f4")[-2:].tolist() == [1e10, 1e10]


def test_kitti_holds_what_kitti_says(tmp_path):
    """Red: 64x + 2^15, green: 64y + 2^15, blue: validity. OpenCV returns them in reverse order."""
    write_flow(tmp_path / "a.png", np.array([[[1.0, 0.0]], [[-2.0, 0.0]]]), np.array([[True, False]]))
    assert cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_UNCHANGED).tolist() == [
        [[1, 2**15 - 128, 2**15 + 64], [0, 0, 0]]
    ]


@pytest.mark.parametrize(("order", "scale"), [("<", b"-1.0"), (">", b"1"), ("<", b"-0.003922"), (">", b"+1e0")])
def test_pfm_in_both_byte_orders_of_one_and_three_channels(tmp_path, order, scale):
    grey = np.array([[1, 2, np.inf], [4, 5, 6]], order + "f4")
    path = saved(tmp_path, "d.pfm", b"Pf\n3 2\n" + scale + b"\n" + grey[::-1].tobytes())  # bottom row first
    flow, valid = read_flow(path)
    assert flow.tolist() == [[[-1, -2, 0], [-4, -5, -6]], [[0, 0, 0], [0, 0, 0]]]
    assert valid.tolist() == [[True, True, False], [True, True, True]]
    colour = np.stack([grey, 2 * grey, np.array([[1, 0, 1], [1, 1, 1]])], -1).astype(order + "f4")
    flow, valid = read_flow(saved(tmp_path, "c.pfm", b"PF 3 2\r\n" + scale + b"\r\n" + colour[::-1].tobytes()))
    assert flow.tolist() == [[[1, 0, 0], [4, 5, 6]], [[2, 0, 0], [8, 10, 12]]]
    assert valid.tolist() == [[True, False, False], [True, True, True]]


def test_an_unused_third_channel_is_no_mask(tmp_path):
    values = np.dstack([np.ones((2, 3)), np.ones((2, 3)), np.zeros((2, 3))]).astype("<f4")
    assert read_flow(saved(tmp_path, "a.pfm", b"PF\n3 2\n-1\n" + values.tobytes()))[1].all()


def test_npz_without_a_mask_and_in_fortran_order(tmp_path):
    flow = np.asfortranarray(sample()[0].astype(np.float64))
    flow[0, 1, 2] = np.nan
    np.savez(tmp_path / "a.npz", flow=flow)
    ours, valid = read_flow(tmp_path / "a.npz")
    assert (~valid).nonzero() == (1, 2)
    assert np.array_equal(ours[:, valid], flow[:, valid].astype(np.float32))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_cut_or_extended_anywhere_is_an_error(tmp_path, capfd, suffix):
    data = content(tmp_path, suffix)
    for length in range(len(data)):
        with pytest.raises(ValueError, match=rf"cut\{suffix}") as error:
            read_flow(saved(tmp_path, f"cut{suffix}", data[:length]))
        assert "\n" not in str(error.value)
    if suffix in (".flo", ".pfm"):
        with pytest.raises(ValueError, match=f"the file has {len(data) + 1}: copy it again"):
            read_flow(saved(tmp_path, f"long{suffix}", data + b"\0"))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(property_test, max_examples=30)
@given(data=st.data())
def test_any_damage_gives_a_flow_or_one_clear_error(tmp_path, suffix, data):
    damaged = bytearray(content(tmp_path, suffix))
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[position] = data.draw(st.integers(0, 255))
    path = saved(tmp_path, f"a{suffix}", damaged)
    message = ""
    try:
        flow, valid = read_flow(path)
        assert flow.shape[1:] == valid.shape
        assert np.isfinite(flow).all()
    except ValueError as error:
        message = str(error)
    assert message == "" or (str(path) in message and "\n" not in message)


def test_npz_with_further_arrays(tmp_path):
    flow, confidence = np.ones((2, 4, 5), np.float32), np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5)
    write_flow(tmp_path / "a.npz", flow, confidence=confidence)
    np.testing.assert_array_equal(read_flow(tmp_path / "a.npz")[0], flow)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["confidence"], confidence)
    with pytest.raises(ValueError, match=r"only \.npz files hold further arrays \(confidence\)"):
        write_flow(tmp_path / "a.flo", flow, confidence=confidence)


def npz_with(header):
    """An archive whose array has this header."""
    text = header.encode().ljust(118) + b"\n"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("flow.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(800))
    return stream.getvalue()


def npz_bomb():
    """An archive whose directory promises a gigabyte."""
    data = bytearray(npz_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 5, 20)}"))
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, 2**30)
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.flo", b"PIEH" + struct.pack("<ii", 2**30, 2**30) + bytes(80), "the file has 92"),
        ("a.flo", b"PIEH" + struct.pack("<ii", -3, -4) + bytes(96), "promises -3×-4 pixels"),
        ("a.flo", b"PIEH" + struct.pack("<ii", 0, 5), "promises 0×5 pixels"),
        ("a.flo", b"PIEH", "promises 0×0 pixels"),
        ("a.flo", b"HEIP" + struct.pack("<ii", 1, 1) + bytes(8), "magic number 202021.25"),
        ("a.pfm", b"PF\n4000000000 4000000000\n-1\n" + bytes(48), "the file has"),
        ("a.pfm", b"PF\n0 3\n-1\n", "promises 0×3 pixels"),
        ("a.pfm", b"P6\n3 3\n255\n", "does not begin with a PFM header"),
        ("a.npz", npz_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 900000, 900000)}"), "promises"),
        (
            "a.npz",
            npz_with("{'descr': '|O', 'fortran_order': False, 'shape': (2, 5, 10)}"),
            "other values than numbers",
        ),
        ("a.npz", npz_with("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 5, 10)}"), r"array \(2, H, W\)"),
        ("a.npz", npz_with("{'descr': '<f4', 'fortran_order': False, 'shape': (200,)}"), r"array \(2, H, W\)"),
        ("a.npz", npz_with("nonsense"), "cannot read"),
        ("a.npz", npz_bomb(), "promises 1073741824 bytes out of"),
        ("a.npz", b"no archive", "the archive is damaged"),
    ],
)
def test_wrong_headers_allocate_nothing(tmp_path, name, data, message):
    path = saved(tmp_path, name, data)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as error:
            read_flow(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert str(path) in str(error.value)


def test_archives_that_hold_something_else(tmp_path):
    for arrays_, message in [
        ({"uv": sample()[0]}, "holds no array 'flow', only uv.npy"),
        ({"flow": sample()[0], "valid": np.ones((5, 7))}, r"'valid' must be a bool array \(5, 7\), got float64"),
        ({"flow": sample()[0], "valid": np.ones((7, 5), bool)}, r"'valid' must be a bool array \(5, 7\)"),
        ({"flow": np.array([object()])}, "other values than numbers"),
    ]:
        np.savez(tmp_path / "a.npz", **arrays_)
        with pytest.raises(ValueError, match=message):
            read_flow(tmp_path / "a.npz")


def test_other_pictures_are_no_kitti_flow(tmp_path):
    for pixels in (np.zeros((4, 5, 3), np.uint8), np.zeros((4, 5), np.uint16), np.zeros((4, 5, 4), np.uint16)):
        cv2.imwrite(str(tmp_path / "a.png"), pixels)
        with pytest.raises(ValueError, match="KITTI flow is a 16-bit RGB PNG, this one holds"):
            read_flow(tmp_path / "a.png")


def test_paths_without_a_flow(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.flo does not exist"):
        read_flow(tmp_path / "no.flo")
    (tmp_path / "folder.flo").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        read_flow(tmp_path / "folder.flo")
    for call in (lambda path: read_flow(path), lambda path: write_flow(path, sample()[0])):
        with pytest.raises(ValueError, match=r"must be one of .flo, .png, .pfm, .npz, got .*a\.txt"):
            call(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("suffix", "flow", "valid", "message"),
    [
        (".png", np.full((2, 3, 3), 512.0), None, "from -512 to 511.98 pixels, got 512: write .flo instead"),
        (".png", np.full((2, 3, 3), -513.0), None, "got 513"),
        (".flo", np.zeros((3, 3, 2)), None, r"flow must be an array \(2, H, W\), got \(3, 3, 2\)"),
        (".flo", np.zeros((2, 0, 2)), None, r"got \(2, 0, 2\)"),
        (".flo", [[1]], None, "got list"),
        (".flo", np.zeros((2, 3, 3), complex), None, "flow must hold real numbers, got complex128"),
        (".npz", np.zeros((2, 3, 3)), np.ones((3, 3)), r"valid must be a bool array \(3, 3\), got float64"),
        (".npz", np.zeros((2, 3, 3)), np.ones((3, 4), bool), r"got bool \(3, 4\)"),
        (".pfm", np.full((2, 3, 3), np.nan), np.ones((3, 3), bool), "9 pixels are marked valid, but their flow is NaN"),
    ],
)
def test_failed_writing_leaves_nothing(tmp_path, suffix, flow, valid, message):
    with pytest.raises(ValueError, match=message):
        write_flow(tmp_path / f"a{suffix}", flow, valid)
    assert not list(tmp_path.iterdir())


def test_kitti_holds_its_extremes(tmp_path):
    flow = np.array([[[-512.0, 511.984375]], [[600.0, 0]]])
    write_flow(tmp_path / "a.png", flow[:, :, 1:])
    assert read_flow(tmp_path / "a.png")[0][0].tolist() == [[511.984375]]
    write_flow(tmp_path / "b.png", flow, np.array([[False, True]]))  # unknown flow may be out of range


def real_pairs():
    """Name, reference, query and flow file of real pairs."""
    middlebury, sintel, kitti = REAL / "middlebury", REAL / "sintel" / "training", REAL / "kitti2015" / "training"
    whale, frames = middlebury / "other-data" / "RubberWhale", sintel / "clean" / "market_5"
    teddy, kitti12 = REAL / "stereo" / "trainingQ" / "Teddy", REAL / "kitti2012" / "training"
    return {
        "middlebury": (
            whale / "frame10.png",
            whale / "frame11.png",
            middlebury / "other-gt-flow/RubberWhale/flow10.flo",
        ),
        "sintel": (frames / "frame_0002.png", frames / "frame_0003.png", sintel / "flow/market_5/frame_0002.flo"),
        "kitti2012": (*(kitti12 / f"image_0/000045_{k}.png" for k in (10, 11)), kitti12 / "flow_noc/000045_10.png"),
        "kitti2015": (*(kitti / f"image_2/000010_{k}.png" for k in (10, 11)), kitti / "flow_noc/000010_10.png"),
        "stereo": (teddy / "im0.png", teddy / "im1.png", teddy / "disp0GT.pfm"),
    }


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real pairs: {REAL} is absent")
@pytest.mark.parametrize("name", real_pairs())
def test_real_flow_brings_the_query_onto_the_reference(name, tmp_path):
    *pictures, file = real_pairs()[name]
    reference, query = (torch.from_numpy(read_image(path)).permute(2, 0, 1)[None].float() for path in pictures)
    array, mask = read_flow(file)
    flow, valid = torch.from_numpy(array)[None], torch.from_numpy(mask)[None, None]
    assert flow.shape[2:] == reference.shape[2:]
    assert 0.1 < mask.mean() <= 1

    def difference(motion):
        where = valid & inside_mask(flow, query.shape[2:]) & inside_mask(-flow, query.shape[2:])
        return (warp(query, motion) - reference).abs().mean(1, keepdim=True)[where].mean()

    assert difference(flow) < 0.7 * difference(torch.zeros_like(flow))
    assert difference(flow) < 0.6 * difference(-flow)
    write_flow(tmp_path / file.name, array, mask)
    again, mask_again = read_flow(tmp_path / file.name)
    assert np.array_equal(again, array)
    assert np.array_equal(mask_again, mask)
