"""Cut-outs from images with transparency and from COCO annotations."""

import json
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from gocor import GOCorError
from gocor.data.io import write_image
from gocor.data.synthetic import ObjectStore, SkippedFilesWarning
from gocor.data.synthetic.coco import decode_runs, fill_polygons, mask_of, uncompress
from gocor.data.synthetic.objects import clean_cutout

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "train" / "objects.zip"


def disc(size=64, radius=24):
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    return (np.hypot(x, y) < radius).astype(np.float32)


def save_rgba(path, rgb, alpha):
    pixels = np.concatenate([rgb[..., ::-1], (255 * alpha[..., None]).astype(np.uint8)], -1)
    path.write_bytes(cv2.imencode(path.suffix, pixels)[1].tobytes())


def coloured(colour, size=64):
    return np.broadcast_to(np.array(colour, np.uint8), (size, size, 3)).copy()


def test_an_edge_has_the_colours_of_the_object():
    """A red disc is cut out of a green photo with a mask that is a pixel too large: no green is left."""
    rgb = np.where(disc(radius=23)[..., None] > 0, np.array([220, 20, 20]), np.array([20, 220, 20])).astype(np.uint8)
    rgba = clean_cutout(rgb, disc(radius=24)).astype(np.float32)
    assert (rgba[..., :3] <= rgba[..., 3:] + 0.5).all()
    soft = (rgba[..., 3] > 20) & (rgba[..., 3] < 235)
    assert soft.sum() > 100
    straight = 255 * rgba[soft][:, :3] / rgba[soft][:, 3:]
    assert straight[:, 0].min() > 190
    assert straight[:, 1].max() < 45


def test_images_with_transparency(tmp_path):
    for name in ("a.png", "b.webp"):
        save_rgba(tmp_path / name, coloured((200, 100, 50)), disc())
    (tmp_path / "objects.json").write_text("[]")
    store = ObjectStore.open(tmp_path)
    assert len(store) == 2
    assert store.pixels.shape == (2, 4, 64, 64)  # 48 and a margin of 8 on either side
    assert (store.sizes == 48).all()
    assert store.centres.tolist() == [[31.5, 31.5]] * 2
    assert store.areas[0] == pytest.approx(disc(radius=23).sum(), rel=0.05)
    alpha = store.pixels[:, 3]
    assert alpha[:, :8].max() == alpha[:, -8:].max() == alpha[:, :, :8].max() == alpha[:, :, -8:].max() == 0
    assert store.pixels[0, :, 32, 32].tolist() == [200, 100, 50, 255]


def test_large_objects_are_shrunk(tmp_path):
    save_rgba(tmp_path / "a.png", coloured((200, 100, 50)), disc())
    store = ObjectStore.open(tmp_path, max_side=24)
    assert store.sizes.tolist() == [[24, 24]]
    assert store.factors.tolist() == [0.5]


def test_files_that_are_no_objects_are_skipped(tmp_path):
    save_rgba(tmp_path / "good.png", coloured((200, 100, 50)), disc())
    save_rgba(tmp_path / "small.png", coloured((200, 100, 50)), disc(radius=5))
    write_image(tmp_path / "opaque.png", coloured((1, 2, 3)))
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.warns(SkippedFilesWarning, match="3 of 4 objects were skipped"):
        assert len(ObjectStore.open(tmp_path)) == 1
    (tmp_path / "good.png").unlink()
    with pytest.raises(ValueError, match="none of 3 objects can be used"):
        ObjectStore.open(tmp_path)


def compressed(counts):
    """COCO's compressed run lengths, encoded by its description."""
    text = ""
    for i, count in enumerate(counts):
        value = count - counts[i - 2] if i > 2 else count
        more = True
        while more:
            chunk = value & 31
            value >>= 5
            more = value != (-1 if chunk & 16 else 0)
            text += chr((chunk | 32 if more else chunk) + 48)
    return text


def runs(mask):
    flat = np.concatenate([[0], mask.T.ravel().astype(int), [2]])
    edges = np.flatnonzero(np.diff(flat))
    return np.diff(np.concatenate([[0], edges])).tolist()


def test_run_lengths():
    """By hand: two rows, three columns, column by column."""
    assert decode_runs([1, 2, 3], 2, 3).tolist() == [[0, 1, 0], [1, 0, 0]]
    mask = disc(20, 7)
    assert np.array_equal(decode_runs(runs(mask), 20, 20), mask)
    assert uncompress(compressed(runs(mask))) == runs(mask)
    assert np.array_equal(mask_of({"size": [20, 20], "counts": compressed(runs(mask))}, 20, 20), mask)
    assert uncompress("5X3") == [5, 104]  # 104 is 8 + 3·32: "8" + 32 is "X", then "3"


def test_long_and_falling_run_lengths_survive_compression():
    counts = [5, 70000, 3, 69000, 2, 1, 100000, 31, 32, 33]
    assert uncompress(compressed(counts)) == counts


def test_polygons():
    """A square from the corner of pixel 2 to the corner of pixel 8 covers pixels 2 to 7."""
    mask = fill_polygons([[2, 2, 8, 2, 8, 8, 2, 8], [12, 12, 16, 12, 16, 16, 12, 16], [1, 1]], 20, 20)
    assert (mask[2:8, 2:8] == 1).all()
    assert (mask[12:16, 12:16] == 1).all()
    assert mask.sum() == pytest.approx(36 + 16, rel=0.1)
    assert mask[9:11].sum() == 0
    triangle = fill_polygons([[3.3, 4.1, 30.2, 8.7, 12.9, 37.5]], 40, 40)
    assert triangle.sum() == pytest.approx(0.5 * abs(26.9 * 33.4 - 9.6 * 4.6), rel=0.03)
    beyond = fill_polygons([[-5, -5, 50, -5, 50, 50, -5, 50]], 20, 30)
    assert (beyond == 1).all()


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        ({"size": [9, 9], "counts": [81]}, "the photo has 8×8"),
        ({"size": [8, 8], "counts": [60]}, "add up to 60"),
        ({"size": [8, 8], "counts": "\n"}, "hold the byte 10"),
        ({"size": [8, 8], "counts": "o" * 20 + "1"}, "a number of more than 60 bits"),
        ({"size": [8, 8]}, "must be a list of polygons or run lengths"),
        ({"counts": [64]}, "must be a list of polygons or run lengths"),
        ({"size": [8, 8], "counts": [2**70]}, "must be a list of polygons or run lengths"),
        ({"size": [8, 8], "counts": [2**63 - 1, 2**63 - 1, 66]}, "run lengths must be positive"),
        ({"size": [8, 8], "counts": [[64]]}, "run lengths must be positive"),
        ([[1, 1, 5, float("inf"), 3, 3]], "corners of a polygon must be finite"),
        ([[1, 1, 5, 1e300, 3, 3]], "corners of a polygon must be finite and at most 1e"),
    ],
)
def test_wrong_masks(segmentation, message):
    with pytest.raises(ValueError, match=message):
        mask_of(segmentation, 8, 8)


@pytest.fixture
def coco(tmp_path):
    """Two photos: one with a polygon, run lengths, a crowd and a tiny object; one with run lengths of a wrong size."""
    images = tmp_path / "images"
    images.mkdir()
    rgb = np.full((80, 100, 3), (20, 220, 20), np.uint8)
    rgb[10:60, 10:50] = (220, 20, 20)
    rgb[20:70, 55:95] = (20, 20, 220)
    write_image(images / "000001.png", rgb)
    write_image(images / "000002.png", rgb)
    mask = np.zeros((80, 100))
    mask[20:70, 55:95] = 1
    square = [10, 10, 50, 10, 50, 60, 10, 60]
    annotations = [
        {"image_id": 1, "iscrowd": 0, "area": 2000, "segmentation": [square]},
        {
            "image_id": 1,
            "iscrowd": 0,
            "area": 2000,
            "segmentation": {"size": [80, 100], "counts": compressed(runs(mask))},
        },
        {"image_id": 1, "iscrowd": 1, "area": 2000, "segmentation": {"size": [80, 100], "counts": runs(mask)}},
        {"image_id": 1, "iscrowd": 0, "area": 16, "segmentation": [[1, 1, 5, 1, 5, 5, 1, 5]]},
        {"image_id": 2, "iscrowd": 0, "area": 2000, "segmentation": {"size": [8, 10], "counts": [80]}},
        {"image_id": 1, "iscrowd": 0, "area": 2000, "segmentation": {"size": [8, 10], "counts": [80]}},
        {"image_id": 3, "iscrowd": 0, "area": 2000, "segmentation": [square]},
    ]
    names = [{"id": i, "file_name": f"train/00000{i}.png"} for i in (1, 2, 3)]
    (tmp_path / "instances.json").write_text(json.dumps({"images": names, "annotations": annotations}))
    return tmp_path


def test_coco_annotations(coco):
    with pytest.warns(SkippedFilesWarning, match="1 of 2 annotated photos were skipped"):
        store = ObjectStore.open(coco / "instances.json", images=coco / "images")
    assert len(store) == 2
    side = store.pixels.shape[-1] // 2
    assert store.pixels[0, :, side, side].tolist() == [220, 20, 20, 255]
    assert store.pixels[1, :, side, side].tolist() == [20, 20, 220, 255]
    assert np.abs(store.sizes - [50, 40]).max() <= 2
    assert store.pixels[:, 1].max() < 25  # no green of the photo


def test_coco_photos_may_be_zipped(coco):
    with zipfile.ZipFile(coco / "images.zip", "w") as archive:
        archive.write(coco / "images" / "000001.png", "000001.png")
    assert len(ObjectStore.open(str(coco / "instances.json"), images=coco / "images.zip")) == 2


def test_coco_sources_may_be_lists(coco):
    """As the options of a training run give them."""
    with pytest.warns(SkippedFilesWarning):
        assert len(ObjectStore.open([coco / "instances.json"], images=[coco / "images"])) == 2


@pytest.mark.parametrize(
    "segmentation", [{"size": [8, 10]}, {"size": 8, "counts": [80]}, {"size": [8, 10], "counts": "\n"}, 7, [["a"] * 6]]
)
def test_malformed_segmentations_are_user_errors(segmentation):
    with pytest.raises(GOCorError, match="run lengths"):
        mask_of(segmentation, 8, 10)


def test_wrong_coco_sources(coco, tmp_path):
    with pytest.raises(ValueError, match="images= must be given with"):
        ObjectStore.open(coco / "instances.json")
    with pytest.raises(ValueError, match="images= must be given with"):
        ObjectStore.open(coco / "images", images=coco / "images")
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="does not hold COCO annotations"):
        ObjectStore.open(tmp_path / "list.json", images=coco / "images")
    (coco / "images" / "000001.png").rename(coco / "images" / "x.png")
    (coco / "images" / "000002.png").unlink()
    with pytest.raises(ValueError, match="none of which is in"):
        ObjectStore.open(coco / "instances.json", images=coco / "images")


@pytest.mark.skipif(not REAL.exists(), reason="the objects of ../shared are not here")
def test_real_objects():
    store = ObjectStore.open(REAL, limit=50)
    assert len(store) == 50
    assert store.sizes.max() <= 256
    assert (store.pixels[:, :3] <= store.pixels[:, 3:]).all()
