"""Photos of folders and zip files."""

import warnings
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from gocor.data.io import write_image
from gocor.data.synthetic import Crop, Motion, PhotoStore, Preset, SkippedFilesWarning, SyntheticPairs
from gocor.data.synthetic.sources import list_images, read_all

from .toy import photo, photo_store

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "train"


def stored(store, index, step=0):
    """A stored photo in its original orientation, `(H, W, 3)`."""
    photos = store.at(step)
    height, width = photos.sizes[index]
    pixels = photos.pixels[index, :, :height, :width].permute(1, 2, 0).numpy()
    return pixels.swapaxes(0, 1) if photos.turned[index] else pixels


def zipped(path, folder):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder))
    return path


def test_folders_within_folders_zips_and_lists(tmp_path):
    folder = tmp_path / "photos"
    (folder / "deep" / "er").mkdir(parents=True)
    write_image(folder / "b.png", photo(40, 60, seed=1))
    write_image(folder / "deep" / "er" / "a.PNG", photo(70, 50, seed=2))
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden.png").write_text("not an image")
    archive = zipped(tmp_path / "photos.zip", folder)
    for source in (folder, str(archive)):
        store = PhotoStore.open(source, threads=1)
        assert len(store) == 2
        assert np.array_equal(stored(store, 0), photo(40, 60, seed=1))
        assert np.array_equal(stored(store, 1), photo(70, 50, seed=2))
    assert len(PhotoStore.open([folder, archive])) == 4


def test_grey_transparent_and_16_bit_photos(tmp_path):
    rgb = photo(40, 60)
    grey, alpha = rgb[..., 0], np.full((40, 60, 1), 255, np.uint8)
    cv2.imwrite(str(tmp_path / "a_grey.png"), grey)
    cv2.imwrite(str(tmp_path / "b_alpha.png"), np.concatenate([rgb[..., ::-1], alpha], -1))
    cv2.imwrite(str(tmp_path / "c_deep.png"), rgb[..., ::-1].astype(np.uint16) * 257)
    store = PhotoStore.open(tmp_path, threads=2)
    assert np.array_equal(stored(store, 0), np.repeat(grey[..., None], 3, -1))
    assert np.array_equal(stored(store, 1), rgb)
    assert np.array_equal(stored(store, 2), rgb)


def test_large_photos_are_shrunk(tmp_path):
    for name, size in (("a", (100, 400)), ("b", (300, 300)), ("c", (300, 240))):
        write_image(tmp_path / f"{name}.png", photo(*size))
    store = PhotoStore.open(tmp_path, max_side=128)
    assert [stored(store, i).shape[:2] for i in range(3)] == [(32, 128), (96, 96), (120, 96)]
    assert store.pixels(0).shape == (3, 3, 96, 128)
    whole = cv2.resize(photo(300, 300), (96, 96), interpolation=cv2.INTER_AREA)
    assert np.array_equal(stored(store, 1), whole)


def test_files_that_are_no_images_are_skipped_with_one_warning(tmp_path):
    write_image(tmp_path / "good.png", photo())
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    (tmp_path / "empty.png").write_bytes(b"")
    write_image(tmp_path / "tiny.png", photo(20, 90))
    with pytest.warns(
        SkippedFilesWarning, match="3 of 4 photos were skipped; the first failed with: .*bad.jpg"
    ) as caught:
        store = PhotoStore.open(tmp_path)
    assert len(caught) == 1
    assert len(store) == 1


def test_a_damaged_file_in_a_zip_is_skipped(tmp_path):
    write_image(tmp_path / "a.png", photo())
    write_image(tmp_path / "b.png", photo(seed=1))
    with zipfile.ZipFile(tmp_path / "photos.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.png", "b.png"):
            archive.write(tmp_path / name, name)
    data = bytearray((tmp_path / "photos.zip").read_bytes())
    start = data.index(b"a.png") + len("a.png")
    data[start : start + 40] = b"\xff" * 40
    (tmp_path / "photos.zip").write_bytes(data)
    with pytest.warns(SkippedFilesWarning, match="1 of 2 photos were skipped.*a.png cannot be unpacked"):
        assert len(PhotoStore.open(tmp_path / "photos.zip")) == 1


def test_bugs_are_not_taken_for_bad_files():
    def mistake(file):
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        list(read_all(["a"], mistake, threads=1, what="files"))


def test_sources_without_images(tmp_path):
    (tmp_path / "notes.txt").write_text("text")
    empty_zip = zipped(tmp_path / "empty.zip", tmp_path / "nothing")
    cases = [
        (tmp_path / "missing", FileNotFoundError, "does not exist"),
        (tmp_path / "notes.txt", ValueError, "neither a folder nor a zip"),
        (empty_zip, ValueError, "no image files"),
        (tmp_path, ValueError, "no image files"),
        ([], ValueError, "no images were given"),
    ]
    for source, error, message in cases:
        with pytest.raises(error, match=message):
            PhotoStore.open(source)
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"none of 1 photos can be used.*bad\.png"):
        PhotoStore.open(tmp_path)


@pytest.mark.parametrize("options", [{"limit": 0}, {"max_side": 10}, {"memory": 0}, {"threads": 0}, {"period": 0}])
def test_options_out_of_range(tmp_path, options):
    write_image(tmp_path / "a.png", photo())
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be at least"):
        PhotoStore.open(tmp_path, **options)


def test_a_limit_takes_evenly_spaced_photos(tmp_path):
    store = photo_store(tmp_path, 9, limit=3)
    assert len(store) == 3
    assert np.array_equal(stored(store, 1), photo(150, 110, seed=4))
    assert len(photo_store(tmp_path, 9, limit=30)) == 9


def test_photos_beyond_the_memory_are_exchanged(tmp_path):
    """Four of ten photos are in memory at a time, always the same ones at the same step, and all at some step."""
    options = {"max_side": 128, "memory": 4 * 3 * 128 * 96 + 99, "period": 5}
    store, again = photo_store(tmp_path, 10, **options), photo_store(tmp_path, 10, **options)
    assert len(store) == 10
    fixed = {step: store.at(step).pixels.clone() for step in range(0, 60, 5)}
    assert all(len(pixels) == 4 for pixels in fixed.values())
    assert any(not torch.equal(fixed[0], fixed[step]) for step in (5, 10))
    assert torch.equal(store.at(4).pixels, fixed[0])
    assert torch.equal(again.at(57).pixels, fixed[55])
    seen = {pixels.numpy().tobytes() for some in fixed.values() for pixels in some}
    assert len(seen) >= 9

    pairs, resumed = (SyntheticPairs(s, size=(32, 32)) for s in (store, again))
    batches = [pairs.batch(step, 3) for step in range(8)]
    assert torch.equal(resumed.batch(7, 3).reference, batches[7].reference)
    for step, batch in enumerate(batches):
        assert torch.equal(resumed.batch(step, 3).reference, batch.reference)


def test_queries_show_photos_upright(tmp_path):
    """The query of a whole photo without motion is the photo, for both orientations."""
    whole = Preset((Motion(),), crop=Crop(share=(1, 1), tilt=0, flip=0), colour=None)
    for size in ((60, 90), (90, 60)):
        write_image(tmp_path / "a.png", photo(*size))
        batch = SyntheticPairs(PhotoStore.open(tmp_path), preset=whole, size=size).batch(0, 1)
        assert (batch.query[0].permute(1, 2, 0).numpy() - photo(*size)).__abs__().max() < 0.1


def test_mirrored_and_tilted_queries_stay_in_the_photo(tmp_path):
    """Then every pixel of a pair without motion is valid."""
    store = photo_store(tmp_path)
    tilted = Preset((Motion(),), crop=Crop(share=(0.9, 1), tilt=40, flip=0.5), colour=None)
    assert SyntheticPairs(store, preset=tilted, size=(40, 60)).batch(0, 32).valid.all()


def test_names_in_lists_are_sorted(tmp_path):
    photo_store(tmp_path, 3)
    assert [file.name for file in list_images(tmp_path)] == ["0.png", "1.png", "2.png"]


@pytest.mark.skipif(not REAL.exists(), reason="the photos of ../shared are not here")
def test_real_photos():
    archives = sorted(REAL.glob("photos_*.zip"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = PhotoStore.open(archives, limit=60)
    assert len(store) == 60
    assert len(list_images(archives)) >= 2295
    batch = SyntheticPairs(store, size=(64, 64)).batch(0, 16)
    assert 0.4 < batch.valid.float().mean() < 0.98
