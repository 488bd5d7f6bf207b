"""Readers on synthetic samples in every public layout, and on real samples if there are any."""

import pickle
import shutil

import numpy as np
import pytest

from gocor.data.datasets import DATASETS, MissingDataError, Pair, open_dataset
from gocor.data.io import read_flow

from .samples import HEIGHT, OPTIONS, REAL, SHIFT, WIDTH, needs_real, put, texture, write_sample

LENGTHS = {  # pairs of the synthetic samples, with the readers' defaults
    "hpatches": 10,
    "kitti2012": 2,
    "kitti2015": 2,
    "sintel": 2,
    "middlebury": 1,
    "stereo": 1,
    "flyingchairs": 3,
    "flyingthings3d": 2,
    "hd1k": 2,
    "tss": 6,
    "megadepth": 2,
    "eth3d": 8,
    "manifest": 3,
}


def sample(name, tmp_path, **options):
    return open_dataset(name, write_sample(name, tmp_path / "data"), **OPTIONS.get(name, {}) | options)


def expected_shift(name, pair):
    if name == "stereo":
        return (-6, 0)
    # HPatches: image 1 is the query. TSS: every second pair goes the other way.
    backwards = name == "hpatches" or pair.name.endswith("_21")
    return tuple(-value for value in SHIFT) if backwards else SHIFT


@pytest.mark.parametrize("name", DATASETS)
def test_every_layout_is_read(name, tmp_path):
    data = sample(name, tmp_path)
    assert len(data) == LENGTHS[name]
    assert len(set(data.names)) == len(data)
    for pair in data:
        start, end, occluded = pair.truth()
        assert len(start) > 0
        assert np.allclose(end - start, expected_shift(name, pair), atol=1e-6)
        assert occluded is None or occluded.shape == (len(start),)
    assert isinstance(data[-1], Pair)
    assert data[-1].name == data.names[-1]


@pytest.mark.parametrize("name", DATASETS)
def test_the_query_shows_what_the_truth_says(name, tmp_path):
    pair = sample(name, tmp_path)[0]
    start, end, _ = pair.truth()
    height, width = pair.query.shape[:2]
    inside = ((end >= 0) & (end <= (width - 1, height - 1))).all(1)
    first, second = np.rint(start[inside]).astype(int), np.rint(end[inside]).astype(int)
    ours = pair.reference[first[:, 1], first[:, 0]].astype(int)
    theirs = pair.query[second[:, 1], second[:, 0]].astype(int)
    assert np.abs(ours - theirs).max() <= 1


@pytest.mark.parametrize("name", DATASETS)
def test_pairs_are_read_lazily_and_can_be_pickled(name, tmp_path):
    data = pickle.loads(pickle.dumps(sample(name, tmp_path)))
    first = data[0]
    shutil.rmtree(tmp_path / "data")
    assert len(data) == LENGTHS[name]
    assert len(data[:1]) == 1
    assert first.reference.dtype == np.uint8
    with pytest.raises(FileNotFoundError):
        data[0]


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "manifest"])
def test_missing_data_is_one_clear_line(name, tmp_path):
    with pytest.raises(MissingDataError, match=r"obtain .*http") as error:
        open_dataset(name, tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)
    with pytest.raises(MissingDataError, match="is not a folder"):
        open_dataset(name, tmp_path / "nowhere")


def test_a_missing_part_is_named(tmp_path):
    write_sample("kitti2015", tmp_path)
    (tmp_path / "training" / "image_2" / "000001_11.png").unlink()
    with pytest.raises(MissingDataError, match=r"000001_11\.png is missing"):
        open_dataset("kitti2015", tmp_path)
    write_sample("sintel", tmp_path)
    shutil.rmtree(tmp_path / "training" / "invalid")
    with pytest.raises(MissingDataError, match="invalid"):
        open_dataset("sintel", tmp_path)


def test_unknown_names_and_options():
    with pytest.raises(ValueError, match="no data set is named 'kitti'"):
        open_dataset("kitti", ".")
    with pytest.raises(ValueError, match="sintel has no option 'pass_'; it has render"):
        open_dataset("sintel", ".", pass_="clean")
    with pytest.raises(ValueError, match="render"):
        open_dataset("sintel", ".", render="albedo")


def test_the_parent_folder_is_accepted(tmp_path):
    write_sample("flyingchairs", tmp_path / "FlyingChairs_release")
    assert len(open_dataset("flyingchairs", tmp_path)) == 3


def test_kitti_prefers_colour_and_knows_occlusions(tmp_path):
    data = sample("kitti2012", tmp_path)
    grey = tmp_path / "data" / "training" / "image_0"
    for name in ("000000_10", "000000_11", "000001_10", "000001_11"):
        put(grey / f"{name}.png", np.repeat(texture(9)[..., :1], 3, 2))
    assert not np.array_equal(data[0].reference[..., 0], data[0].reference[..., 1])
    grey_data = open_dataset("kitti2012", tmp_path / "data", images="image_0")
    assert np.array_equal(grey_data[0].reference[..., 0], grey_data[0].reference[..., 1])
    pair = data[0]
    assert pair.valid.sum() == (HEIGHT - len(range(0, HEIGHT, 3))) * WIDTH
    assert np.array_equal(pair.occluded, pair.valid & (np.arange(WIDTH) < 10))


def test_sintel_masks(tmp_path):
    pair = sample("sintel", tmp_path, render="final")[1]
    assert not pair.valid[:2].any()
    assert pair.valid[2:].all()
    assert pair.occluded[:, -8:].all()
    assert not pair.occluded[:, :-8].any()


def test_stereo_flow_is_minus_the_disparity(tmp_path):
    pair = sample("stereo", tmp_path)[0]
    assert not pair.valid[0, :5].any()
    assert pair.flow[1, 20].tolist() == [-6, 0]
    assert pair.occluded[5, :7].all()
    assert not pair.occluded[5, 7:].any()


def test_flyingchairs_split(tmp_path):
    assert sample("flyingchairs", tmp_path, split="train").names == ("00001", "00003")
    assert open_dataset("flyingchairs", tmp_path / "data", split="val").names == ("00002",)
    (tmp_path / "data" / "FlyingChairs_train_val.txt").write_text("1\n2\n")
    with pytest.raises(ValueError, match="2 lines, but there are 3 pairs"):
        open_dataset("flyingchairs", tmp_path / "data", split="val")


def test_flyingthings_goes_both_ways(tmp_path):
    future = sample("flyingthings3d", tmp_path)
    past = open_dataset("flyingthings3d", tmp_path / "data", direction="into_past")
    assert future.names == ("A_0000_0006", "A_0000_0007")
    assert past.names == ("A_0000_0007", "A_0000_0008")
    assert np.array_equal(past[0].flow, -future[0].flow)
    assert np.array_equal(past[0].query, future[0].reference)


def test_hpatches_both_ways(tmp_path):
    towards = sample("hpatches", tmp_path)
    away = open_dataset("hpatches", tmp_path / "data", reference="first")
    assert towards.names == away.names
    assert np.array_equal(towards[0].reference, away[0].query)
    assert np.allclose(towards[0].flow, -away[0].flow)
    assert len(open_dataset("hpatches", tmp_path / "data", split="all")) == 15
    assert {item.group for item in towards.items} == {"2", "3", "4", "5", "6"}


def test_tss_both_directions_groups_and_flips(tmp_path):
    data = sample("tss", tmp_path)
    assert [item.group for item in data.items] == ["FG3DCar"] * 2 + ["JODS"] * 2 + ["PASCAL"] * 2
    assert [pair.mirrored for pair in data] == [False, False, True, True, False, False]
    assert data[0].reference.shape == data[1].query.shape != data[1].reference.shape
    assert data[0].valid.sum() == 16 * 30


def test_eth3d_intervals_cameras_and_groups(tmp_path):
    data = sample("eth3d", tmp_path)
    assert {item.group for item in data.items} == {"delivery_area", "forest"}
    pair = data[0]
    assert pair.points.shape == (3, 4)
    assert pair.points[0, :2].tolist() == [30, 20]  # half a pixel less than in COLMAP's file
    assert np.allclose(pair.cameras.translation, [SHIFT[0] / 50, SHIFT[1] / 50, 0])
    assert np.allclose(pair.cameras.reference, [[50, 0, 28], [0, 50, 20], [0, 0, 1]])
    wide = open_dataset("eth3d", tmp_path / "data", interval=15)
    assert len(wide) == 2
    assert np.allclose(wide[0].points[:, 2:] - wide[0].points[:, :2], np.array(SHIFT) * 5)
    with pytest.raises(ValueError, match="interval must be at least 1"):
        open_dataset("eth3d", tmp_path / "data", interval=0)
    with pytest.raises(MissingDataError, match="19 apart"):
        open_dataset("eth3d", tmp_path / "data", interval=19, min_points=4)


def test_megadepth_names_what_is_wrong_with_its_table(tmp_path):
    data = sample("megadepth", tmp_path)
    assert data[1].points.shape == (4, 4)
    path = tmp_path / "data" / "test1600Pairs.csv"
    path.write_text(path.read_text().replace("XA", "XC"))
    with pytest.raises(ValueError, match="XA is missing"):
        open_dataset("megadepth", tmp_path / "data")
    table = path.read_text().replace("XC", "XA")
    path.write_text(table.replace(";", ",", 1))
    with pytest.raises(ValueError, match=r"test1600Pairs\.csv, row 2: expected 8 values .*, got 9"):
        open_dataset("megadepth", tmp_path / "data")
    path.write_text(table.replace(";", "/", 1))
    with pytest.raises(ValueError, match=r"test1600Pairs\.csv, pair 0000"):
        open_dataset("megadepth", tmp_path / "data")[0]
    path.write_text(table.splitlines()[0])
    with pytest.raises(MissingDataError, match="any pair is missing"):
        open_dataset("megadepth", tmp_path / "data")


@needs_real
def test_real_samples():
    """Numbers of pairs and sizes, counted by hand."""
    counts = {
        ("hpatches", "v"): 16,
        ("hpatches", "i"): 10,
        ("middlebury", None): 3,
        ("sintel", "clean"): 1,
        ("sintel", "final"): 2,
        ("kitti2012", None): 1,
        ("kitti2015", None): 1,
        ("flyingchairs", None): 1,
        ("stereo", None): 2,
    }
    key = {"hpatches": "split", "sintel": "render"}
    for (name, option), count in counts.items():
        data = open_dataset(name, REAL / name, **({key[name]: option} if option else {}))
        assert len(data) == count, name
        pair = data[0]
        assert pair.reference.shape[:2] == pair.valid.shape
        assert pair.valid.any()


@needs_real
def test_real_kitti_agrees_with_its_file():
    pair = open_dataset("kitti2015", REAL / "kitti2015")[0]
    flow, valid = read_flow(REAL / "kitti2015" / "training" / "flow_occ" / "000010_10.png")
    assert np.array_equal(pair.flow.transpose(2, 0, 1), flow)
    assert np.array_equal(pair.valid, valid)
    assert 0 < pair.occluded.sum() < valid.sum()


@needs_real
def test_real_homographies_align_the_images():
    """The query warped by the ground truth resembles the reference more than the query itself does."""
    import cv2

    for split in ("v", "i"):
        pair = open_dataset("hpatches", REAL / "hpatches", split=split)[0]
        y, x = np.mgrid[: pair.valid.shape[0], : pair.valid.shape[1]].astype(np.float32)
        grey = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32) for image in (pair.reference, pair.query)]
        seen = cv2.remap(grey[1], x + pair.flow[..., 0], y + pair.flow[..., 1], cv2.INTER_LINEAR, borderValue=np.nan)
        inside = np.isfinite(seen)
        still = cv2.resize(grey[1], grey[0].shape[::-1])
        aligned, apart = (np.corrcoef(image[inside], grey[0][inside])[0, 1] for image in (seen, still))
        assert aligned > max(0.8, apart + 0.05)


def test_a_folder_in_place_of_a_reconstruction(tmp_path):
    root = write_sample("eth3d", tmp_path / "data")
    for path in root.glob("**/images.txt"):
        path.unlink()
        path.mkdir()
    with pytest.raises(MissingDataError, match="ETH3D: "):
        open_dataset("eth3d", root)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("sintel", "**/invalid/*/*.png"), ("stereo", "**/mask0nocc.png")],
)
def test_masks_of_another_size(tmp_path, name, pattern):
    root = write_sample(name, tmp_path / "data")
    for path in root.glob(pattern):
        put(path, texture(0, HEIGHT + 1, WIDTH))
    with pytest.raises(ValueError, match=r"pixels, the flow has \(40, 56\)"):
        open_dataset(name, root)[0]


def test_points_of_megadepth_are_finite(tmp_path):
    root = write_sample("megadepth", tmp_path / "data")
    path = next(root.glob("**/test1600Pairs.csv"))
    header, row = path.read_text().splitlines()[:2]
    names = header.split(",")
    values = row.split(",")
    values[names.index("XA")] = "nan" + values[names.index("XA")].lstrip("0123456789.-")
    path.write_text(f"{header}\n{','.join(values)}\n")
    with pytest.raises(ValueError, match="XA, YA, XB and YB must hold the same number of values"):
        open_dataset("megadepth", root)[0]


def test_eth3d_across_cameras_goes_from_the_narrow_to_the_wide_field_of_view(tmp_path):
    root = write_sample("eth3d", tmp_path)
    data = open_dataset("eth3d", root, cameras="across")
    assert (data.name, data.names) == ("eth3d-cameras", ("delivery_area_0_1000_across", "forest_0_1000_across"))
    pair = data[0]
    assert (pair.cameras.reference[0, 0], pair.cameras.query[0, 0]) == (50, 25)
    assert np.allclose(pair.points[:, 2:] - pair.points[:, :2], SHIFT)
    with pytest.raises(ValueError, match="cameras must be one of 'same', 'across'"):
        open_dataset("eth3d", root, cameras="both")
