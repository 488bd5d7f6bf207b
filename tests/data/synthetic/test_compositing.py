"""Objects: motion and occlusion of pixels, against a computation pixel by pixel."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gocor.data.synthetic import PRESETS, Crop, Motion, Objects, Preset, SyntheticPairs, compositing
from gocor.data.synthetic.drawing import draw_batch
from gocor.data.synthetic.motion import Frame, draw_warps
from gocor.data.synthetic.moving import _draw_parallax, draw_objects

from .toy import object_store, photo_store

SIZE = 72
MARGIN = 1.5  # pixels: at a smaller distance from an edge, colours may be mixed


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return photo_store(tmp_path_factory.mktemp("photos"))


def project(matrix, point):
    x, y, w = matrix @ (*point, 1.0)
    return np.array([x / w, y / w]) if w > 0.05 else np.array([1e6, 1e6])


def depth_inside(store, index, matrix, point):
    """Pixels from a point to the edge of an object, negative outside; `matrix` maps to the stored object."""
    if not matrix[0].any():
        return -1e6  # absent
    at = project(matrix, point)
    height, width = store.sizes[index]
    inside = np.array([width, height]) / 2 - np.abs(at - store.centres[index])
    step = (
        max(
            np.linalg.norm(project(matrix, (point[0] + 0.1, point[1])) - at),
            np.linalg.norm(project(matrix, (point[0], point[1] + 0.1)) - at),
        )
        / 0.1
    )
    return inside.min() / step


@pytest.mark.parametrize("name", ["dynamic", "dynamic-published"])
def test_owners_and_occlusion_pixel_by_pixel(photos, name):
    store = object_store()
    changes = {"count": (3, 3), "share": 1.0, "size": (0.3, 0.8), "near": 0.6, "shift": (0.05, 0.5)}
    preset = replace(PRESETS[name], colour=None, objects=replace(PRESETS[name].objects, **changes))
    pairs = SyntheticPairs(photos, preset=preset, size=(SIZE, SIZE), objects=store, seed=1)
    batch, frame = pairs.batch(0, 4), Frame(SIZE, SIZE)
    drawn = draw_batch(preset, photos.at(0), store, 4, frame, np.random.default_rng([1, 0]))
    alone = SyntheticPairs(photos, preset=replace(preset, objects=None), size=(SIZE, SIZE), seed=1).batch(0, 4)
    counts = dict.fromkeys(("object", "occluded", "visible", "outside"), 0)
    for b in range(4):
        to_object, motion = drawn["to_object"][b], drawn["object_motion"][b]
        index = drawn["object"][b].astype(int)
        for y in range(0, SIZE, 3):
            for x in range(0, SIZE, 3):
                depths = [depth_inside(store, index[k], to_object[k, 0], (x, y)) for k in range(3)]
                if any(abs(d) < MARGIN for d in depths):
                    continue
                owner = max((k for k in range(3) if depths[k] > 0), default=None)
                flow = batch.flow[b, :, y, x].numpy()
                background = alone.flow[b, :, y, x].numpy()
                expected = background if owner is None else project(motion[owner], (x, y)) - (x, y)
                assert np.abs(flow - expected).max() < 0.01
                target = expected + np.array([x, y])
                inside = (target >= 0.01).all() and (target <= SIZE - 1.01).all()
                outside = (target < -0.01).any() or (target > SIZE - 0.99).any()
                above = range(0 if owner is None else owner + 1, 3)
                covers = [depth_inside(store, index[k], to_object[k, 1], target) for k in above]
                if any(abs(d) < 2 * MARGIN for d in covers):
                    continue
                hidden = any(d > 0 for d in covers)
                valid, occluded = bool(batch.valid[b, 0, y, x]), bool(batch.occluded[b, 0, y, x])
                shown = owner is not None or bool(alone.valid[b, 0, y, x])
                if outside:
                    assert not valid
                    assert not occluded
                    counts["outside"] += 1
                elif inside and shown:
                    assert occluded == hidden
                    if (
                        owner is None or depths[owner] > 3
                    ):  # near its own edge, an object may be mixed with others in the query
                        assert valid == (not hidden)
                    counts["occluded" if hidden else "visible"] += 1
                    counts["object"] += owner is not None
    assert min(counts.values()) > 20, counts


def test_objects_are_in_front_and_keep_their_colours(photos):
    """Pixels deep inside an object of one colour have that colour, in both images."""
    preset = replace(
        PRESETS["dynamic"], colour=None, objects=Objects(count=(1, 1), size=(0.6, 0.6), near=1, shift=(0.01, 0.02))
    )
    store = object_store()
    batch = SyntheticPairs(photos, preset=preset, size=(64, 64), objects=store).batch(0, 12)
    red = (batch.reference - torch.tensor([250.0, 10, 10])[:, None, None]).abs().amax(1, keepdim=True) < 2
    assert red.sum() > 500
    target_red = (batch.query - torch.tensor([250.0, 10, 10])[:, None, None]).abs().amax(1, keepdim=True) < 2
    assert target_red.sum() > 300


@pytest.mark.parametrize("together", [2, 4, 6])
def test_objects_may_be_read_together(photos, monkeypatch, together):
    pairs = SyntheticPairs(photos, preset="dynamic", size=(40, 48), objects=object_store())
    one_by_one = pairs.batch(0, 4)
    monkeypatch.setattr(compositing, "_slots_at_once", lambda *arguments: together)
    at_once = pairs.batch(0, 4)
    for field in ("reference", "query", "flow", "valid", "occluded"):
        assert torch.equal(getattr(at_once, field), getattr(one_by_one, field))


def test_pairs_without_objects(photos):
    still = replace(PRESETS["dynamic"], objects=Objects(share=0.0))
    pairs = SyntheticPairs(photos, preset=still, size=(48, 48), objects=object_store()).batch(0, 4)
    alone = SyntheticPairs(photos, preset=replace(still, objects=None), size=(48, 48)).batch(0, 4)
    assert torch.equal(pairs.flow, alone.flow)
    assert torch.equal(pairs.valid, alone.valid)
    assert torch.equal(pairs.reference, alone.reference)
    assert not pairs.occluded.any()


def test_how_many_objects(photos):
    store, frame = object_store(), Frame(64, 64)
    drawn = draw_batch(PRESETS["dynamic-published"], photos.at(0), store, 4000, frame, np.random.default_rng(0))
    present = drawn["to_object"][:, :, 0, 0].any(-1)
    assert present.shape == (4000, 1)
    assert present.mean() == pytest.approx(0.8, abs=0.02)
    drawn = draw_batch(PRESETS["dynamic"], photos.at(0), store, 3000, frame, np.random.default_rng(0))
    numbers = drawn["to_object"][:, :, 0, 0].any(-1).sum(1)
    assert np.abs(np.bincount(numbers, minlength=7) / 3000 - np.array([0, 1, 1, 1, 1, 1, 1]) / 6).max() < 0.03


def test_published_objects_have_their_own_size_and_small_or_large_moves(photos):
    """At 520 pixels an object keeps its size; half of the moves are below 8 pixels, the others go anywhere."""
    store, frame = object_store(), Frame(520, 520)
    drawn = draw_batch(PRESETS["dynamic-published"], photos.at(0), store, 4000, frame, np.random.default_rng(0))
    present = drawn["to_object"][:, 0, 0, 0].any(-1)
    scale = np.sqrt(np.abs(np.linalg.det(drawn["to_object"][present, 0, 0, :2, :2])))
    assert np.allclose(scale, 1)
    turned = drawn["object_motion"][:, 0, :2, :2]
    zoom = 0.5 * np.log(np.linalg.det(turned))
    assert 0.29 < np.abs(zoom).max() <= 0.3
    angle = np.rad2deg(np.arctan2(turned[:, 1, 0], turned[:, 0, 0]))
    assert 29.5 < np.abs(angle).max() <= 30
    middle = (
        np.linalg.inv(drawn["to_object"][present, 0])
        @ np.concatenate([store.centres[drawn["object"][present, 0].astype(int)], np.ones((present.sum(), 1))], 1)[
            :, None, :, None
        ]
    )
    middle = middle[..., :2, 0] / middle[..., 2:, 0]
    move = np.abs(middle[:, 1] - middle[:, 0]).max(-1)
    assert (move <= 8.0).mean() == pytest.approx(0.5, abs=0.03)
    assert move.max() > 300


def test_native_objects_that_cover_too_much_are_shrunk(photos):
    """Their area becomes a share of the image in the range."""
    store, frame = object_store(), Frame(40, 40)
    objects = replace(PRESETS["dynamic-published"].objects, native_side=20)
    preset = replace(PRESETS["dynamic-published"], objects=objects)
    drawn = draw_batch(preset, photos.at(0), store, 500, frame, np.random.default_rng(0))
    present = drawn["to_object"][:, 0, 0, 0].any(-1)
    scale = 1 / np.sqrt(np.abs(np.linalg.det(drawn["to_object"][present, 0, 0, :2, :2])))
    covered = store.areas[drawn["object"][present, 0].astype(int)] * scale**2 / 1600
    assert covered.min() >= 0.1 - 1e-6
    assert covered.max() <= 0.4 + 1e-6


@pytest.mark.parametrize("relative", [True, False])
def test_moves_are_relative_to_the_background(photos, relative):
    """An object with a tiny move follows the background if `relative`, else it stays where it is."""
    objects = Objects(
        count=(1, 1),
        near=1,
        shift=(1e-6, 2e-6),
        relative=relative,
        rotation=0,
        zoom=0,
        stretch=0,
        shear=0,
        perspective=0,
    )
    preset = replace(PRESETS["static"], colour=None, objects=objects)
    store = object_store()
    moving = SyntheticPairs(photos, preset=preset, size=(64, 64), objects=store).batch(0, 32)
    alone = SyntheticPairs(photos, preset=replace(preset, objects=None), size=(64, 64)).batch(0, 32)
    owned = (moving.flow - alone.flow).abs().amax(1) > 1e-3
    if relative:
        difference = (moving.flow - alone.flow).norm(dim=1)[owned]
        assert difference.median() < 1.5
        assert alone.flow.norm(dim=1).median() > 3 * difference.median()
    else:
        assert moving.flow.permute(0, 2, 3, 1)[owned].abs().max() < 1e-3


def test_a_moving_camera_shifts_near_objects_more_in_one_direction():
    """Before a background at rest, objects move along one line, the nearest the farthest; forward moves enlarge."""
    still, frame = (Motion(),), Frame(SIZE, SIZE)
    settings = Objects(count=(6, 6), parallax=1.0, near=1.0, perspective=0, travel=(0.05, 0.1))
    warps = draw_warps(still, 40, frame, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    centre = rng.uniform(-0.5, 0.5, (40, 6, 2))
    standing, shift, zoom = _draw_parallax(settings, centre, rng)
    assert 0.6 < standing.mean() < 0.9
    sideways = shift - (zoom - 1)[..., None] * centre
    length = np.linalg.norm(sideways, axis=-1)
    assert (np.diff(length / zoom, axis=1) > 0).all()  # farthest first
    directions = sideways / length[..., None]
    assert np.allclose(directions, directions[:, :1])
    assert ((zoom > 1).all(1) | (zoom < 1).all(1)).all()
    drawn = draw_objects(settings, object_store(), warps, frame, rng)
    moved = np.linalg.norm(drawn["object_motion"][:, :, :2, 2], axis=-1)
    assert np.isfinite(moved).all()


def test_thin_objects_are_squeezed():
    frame, settings = Frame(SIZE, SIZE), Objects(count=(4, 4), size=(0.5, 0.5), spin=0, flip=0)
    store, found = object_store(), {}
    for thin in (0.0, 1.0):
        warps = draw_warps((Motion(),), 30, frame, np.random.default_rng(0))
        drawn = draw_objects(replace(settings, thin=thin), store, warps, frame, np.random.default_rng(0))
        found[thin] = drawn["to_object"][:, :, 0, 0, 0]  # stored pixels per pixel of the reference, along x
    assert (found[1.0] / found[0.0] > 2.8).all()
    assert (found[1.0] / found[0.0] < 8.4).all()


def test_flow_outside_of_the_query_is_known_as_far_as_the_preset_says(photos):
    preset = Preset((Motion(shift=1.0),), Crop(share=(0.2, 0.3), tilt=0), colour=None)
    batches = {
        leaving: SyntheticPairs(photos, preset=replace(preset, leaving=leaving), size=(SIZE, SIZE)).batch(0, 8)
        for leaving in (0.0, 0.3)
    }
    assert not batches[0.0].occluded.any()
    known, flow = batches[0.3].occluded[:, 0], batches[0.3].flow
    assert known.any()
    target = flow + torch.stack(torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="xy"))
    beyond = torch.maximum(-target, target - (SIZE - 1)).amax(1)
    assert (beyond[known] > 0).all()
    assert (beyond[known] < 0.3 * SIZE / 2 + 0.01).all()
    assert torch.equal(batches[0.3].valid, batches[0.0].valid)
