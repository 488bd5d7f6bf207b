"""The ray tracer of `examples/`, which rendered the bundled pair and the gallery."""

from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import courtyard
    import draw_gallery
    import raytracer

    return {"courtyard": courtyard, "draw_gallery": draw_gallery, "raytracer": raytracer}


def test_flow_of_a_wall_is_its_disparity(examples):
    """A camera that moves by b to the right sees a wall at depth z move by f·b/z to the left."""
    tracer = examples["raytracer"]
    wall = tracer.Box((0, 0, 5.5), (50, 50, 0.5), tracer.Paint("any"))
    left = tracer.Camera((0, 0, 0), (0, 0, 1), size=(30, 40))
    right = tracer.Camera((0.5, 0, 0), (0.5, 0, 1), size=(30, 40))
    flow, seen = tracer.true_flow([wall], left, right)
    np.testing.assert_allclose(flow[..., 0], -left.focal * 0.5 / 5, atol=1e-3)
    np.testing.assert_allclose(flow[..., 1], 0, atol=1e-3)
    assert not seen[:, :3].any()  # they leave the query
    assert seen[:, 4:].all()


def test_what_a_ball_hides_is_not_seen(examples):
    tracer = examples["raytracer"]
    paint = tracer.Paint("any")
    scene = [tracer.Box((0, 0, 5.5), (50, 50, 0.5), paint), tracer.Ball((0, 0, 3), 0.5, paint)]
    left = tracer.Camera((-0.3, 0, 0), (-0.3, 0, 1), size=(30, 40))
    right = tracer.Camera((0.3, 0, 0), (0.3, 0, 1), size=(30, 40))
    _, alone = tracer.true_flow(scene[:1], left, right)
    _, seen = tracer.true_flow(scene, left, right)
    hidden = alone & ~seen
    assert 0 < hidden.sum() < 100
    assert hidden[12:18].any()


def test_every_pair_renders(examples, tmp_path, monkeypatch):
    from dataclasses import replace

    from gocor.data.io import read_image, write_flow, write_image

    courtyard = examples["courtyard"]
    generator = np.random.default_rng(0)
    for file in courtyard.PHOTOS.values():
        (tmp_path / "photos").mkdir(exist_ok=True)
        write_image(tmp_path / "photos" / file, generator.integers(0, 255, (16, 16, 3), np.uint8))
    small = {name: [replace(camera, size=(24, 32)) for camera in pair] for name, pair in courtyard.PAIRS.items()}
    monkeypatch.setattr(courtyard, "PAIRS", small)
    arguments = ["-o", str(tmp_path / "pairs"), "--photos", str(tmp_path / "photos"), "--samples", "1"]
    courtyard.main(arguments)
    for name in small:
        folder = tmp_path / "pairs" / name
        assert read_image(folder / "reference.jpg").shape == read_image(folder / "query.jpg").shape == (24, 32, 3)
        assert read_image(folder / "reference.jpg").std() > 10
        (folder / "out").mkdir()
        write_flow(folder / "out" / "flow.flo", np.zeros((2, 24, 32), np.float32))
        for picture in ("warped.png", "confidence.png"):
            write_image(folder / "out" / picture, np.zeros((24, 32, 3), np.uint8))
    examples["draw_gallery"].main([str(tmp_path / "pairs"), "-o", str(tmp_path / "pictures")])
    assert {path.stem for path in (tmp_path / "pictures").iterdir()} == set(small)


def test_the_gallery_shows_every_pair(examples):
    page = (EXAMPLES.parent / "docs" / "gallery.md").read_text(encoding="utf-8")
    for name in examples["courtyard"].PAIRS:
        assert f"images/gallery/{name}.jpg" in page


def test_wide_scenes_are_written_with_their_flow(examples, tmp_path, monkeypatch):
    """The photographs agree along the true flow, and `gocor eval` reads the manifest."""
    import wide_scenes

    from gocor.data.datasets import manifest

    photos, camera = Path(__file__).parents[1] / "src/gocor/assets", examples["raytracer"].Camera
    monkeypatch.setattr(wide_scenes, "Camera", lambda *args, **options: camera(*args, **options, size=(48, 64)))
    wide_scenes.main([str(photos), "-o", str(tmp_path), "--pairs", "2", "--seed", "1"])
    pairs = list(manifest(tmp_path / "pairs.csv"))
    assert len(pairs) == 2
    for pair in pairs:
        rows, columns = np.nonzero(pair.valid)
        assert len(rows) > 300
        x, y = (np.stack([columns, rows]) + pair.flow[rows, columns].T).round().astype(int)
        colours, matched = pair.reference[rows, columns].astype(float), pair.query[y, x].astype(float)
        unrelated = np.abs(colours - np.roll(matched, len(rows) // 2, 0)).mean()
        assert np.abs(colours - matched).mean() < 0.7 * unrelated
    assert (pairs[0].flow != pairs[1].flow).any()
