"""Pairs: exact flow, masks, and reproducibility."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from gocor.data.synthetic import PRESETS, Crop, Motion, PairBatch, Preset, SyntheticPairs, compositing
from gocor.data.synthetic.drawing import draw_batch
from gocor.data.synthetic.motion import Frame
from gocor.ops.warp import warp

from .toy import object_store, photo_store

STILL = Preset((Motion(),), crop=Crop(share=(1, 1), tilt=0, flip=0), colour=None)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return photo_store(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def objects():
    return object_store()


def same(a, b):
    return all(torch.equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(PairBatch))


def plain(name):
    return replace(PRESETS[name], colour=None)


@pytest.mark.parametrize("size", [(64, 64), (48, 80), (80, 48)])
def test_no_motion_is_no_flow(photos, size):
    batch = SyntheticPairs(photos, preset=STILL, size=size).batch(0, 5)
    assert batch.flow.abs().max() < 1e-4
    assert batch.valid.all()
    assert not batch.occluded.any()
    assert (batch.reference - batch.query).abs().max() < 0.05


@pytest.mark.parametrize("name", PRESETS)
def test_shapes_and_ranges(photos, objects, name):
    batch = SyntheticPairs(photos, preset=name, size=(48, 64), objects=objects).batch(3, 4)
    assert len(batch) == 4
    for image in (batch.reference, batch.query):
        assert image.shape == (4, 3, 48, 64)
        assert image.dtype == torch.float32
        assert image.is_contiguous()
        assert image.min() >= 0
        assert image.max() <= 255
        assert image.std() > 10
    assert batch.flow.shape == (4, 2, 48, 64)
    assert batch.flow.isfinite().all()
    assert batch.valid.shape == batch.occluded.shape == (4, 1, 48, 64)
    assert batch.valid.dtype == batch.occluded.dtype == torch.bool
    assert not (batch.valid & batch.occluded).any()
    assert 0.3 < batch.valid.float().mean() < 1


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("size", [(64, 64), (48, 80)])
def test_the_warped_query_is_the_reference(photos, objects, name, size, monkeypatch):
    """Up to interpolation on smooth photos; at the edges of objects too, if pixels of two colours are not valid."""
    monkeypatch.setattr(compositing, "UNMIXED", 0.999)
    batch = SyntheticPairs(photos, preset=plain(name), size=size, objects=objects).batch(0, 24)
    error = (warp(batch.query, batch.flow, padding="border") - batch.reference).abs().amax(1, keepdim=True)[batch.valid]
    assert batch.valid.float().mean() > 0.4
    assert error.mean() < 0.6
    assert error.quantile(0.999) < 8
    wrong = (warp(batch.query, -batch.flow, padding="border") - batch.reference).abs().mean(1, keepdim=True)
    assert wrong[batch.valid].mean() > 4 * error.mean()


@pytest.mark.parametrize("name", ["dynamic", "flow"])
def test_edges_of_objects_may_be_slightly_mixed(photos, objects, name):
    batch = SyntheticPairs(photos, preset=plain(name), size=(96, 96), objects=objects).batch(0, 16)
    error = (warp(batch.query, batch.flow, padding="border") - batch.reference).abs().amax(1, keepdim=True)[batch.valid]
    assert error.mean() < 1
    assert error.max() < 255 * 2 * (1 - compositing.UNMIXED)


def test_valid_is_where_the_target_is_inside(photos):
    """Without objects, if the whole query lies inside the photo."""
    batch = SyntheticPairs(photos, preset=plain("static"), size=(40, 56)).batch(1, 16)
    x = torch.arange(56.0) + batch.flow[:, 0]
    y = torch.arange(40.0)[:, None] + batch.flow[:, 1]
    inside = (x > 0.01) & (x < 54.99) & (y > 0.01) & (y < 38.99)
    outside = (x < -0.01) | (x > 55.01) | (y < -0.01) | (y > 39.01)
    assert batch.valid[:, 0][inside].all()
    assert not batch.valid[:, 0][outside].any()
    assert inside.any()
    assert outside.any()


def test_flow_agrees_with_the_drawn_matrices(photos):
    """Homographies and affine maps, computed in float64 from the parameters, pixel by pixel."""
    motions = (Motion(rotation=40, zoom=0.5, shear=0.2, shift=0.3), Motion(corners=0.5))
    pairs = SyntheticPairs(photos, preset=replace(STILL, motions=motions), size=(30, 44), seed=5)
    batch, frame = pairs.batch(7, 6), Frame(30, 44)
    drawn = draw_batch(pairs.preset, photos.at(7), None, 6, frame, np.random.default_rng([5, 7]))
    for flow, matrix in zip(batch.flow.numpy(), drawn["matrix"], strict=True):
        for y, x in [(0, 0), (29, 43), (7, 30), (15, 21)]:
            n = np.array([(x - 21.5) / 14.5, (y - 14.5) / 14.5, 1])
            u, v, w = matrix @ n
            assert flow[0, y, x] == pytest.approx(u / w - x, abs=2e-4)
            assert flow[1, y, x] == pytest.approx(v / w - y, abs=2e-4)


def test_one_known_rotation(photos):
    """A rotation by 90° maps the upper left corner to the upper right corner."""
    turn = replace(STILL, motions=(Motion(stretch=(1, 1), rotation=90),))
    pairs = SyntheticPairs(photos, preset=turn, size=(33, 33))
    batch = pairs.batch(0, 64)
    angle = torch.atan2(batch.flow[:, 1, 16, 32], 16 + batch.flow[:, 0, 16, 32])  # at the centre of the right edge
    assert angle.abs().max() < np.pi / 2 + 1e-3
    assert angle.min() < -1
    assert angle.max() > 1
    corner = torch.stack([batch.flow[:, 0, 0, 0] - 16, batch.flow[:, 1, 0, 0] - 16])
    expected = torch.stack([-16 * angle.cos() + 16 * angle.sin(), -16 * angle.sin() - 16 * angle.cos()])
    assert torch.allclose(corner, expected, atol=1e-3)


@pytest.mark.parametrize("name", PRESETS)
def test_the_pairs_of_a_step_do_not_depend_on_earlier_calls(photos, objects, name):
    first = SyntheticPairs(photos, preset=name, size=(32, 32), seed=3, objects=objects)
    second = SyntheticPairs(photos, preset=name, size=(32, 32), seed=3, objects=objects)
    expected = [first.batch(step, 4) for step in range(3)]
    assert same(second.batch(2, 4), expected[2])
    assert same(second.batch(0, 4), expected[0])
    assert not torch.equal(expected[0].flow, expected[1].flow)
    other = SyntheticPairs(photos, preset=name, size=(32, 32), seed=4, objects=objects)
    assert not torch.equal(other.batch(0, 4).flow, expected[0].flow)


@pytest.mark.parametrize("name", ["static", "dynamic"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_the_batch_of_one_process(photos, objects, name, world_size):
    pairs = SyntheticPairs(photos, preset=name, size=(40, 48), objects=objects)
    shares = [pairs.batch(9, 6, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert all(len(share) == 6 // world_size for share in shares)
    assert same(PairBatch.cat(shares), pairs.batch(9, 6))


def test_autocast_changes_nothing(photos, objects):
    pairs = SyntheticPairs(photos, preset="dynamic", size=(32, 32), objects=objects)
    with torch.autocast("cpu", torch.bfloat16):
        inside = pairs.batch(0, 2)
    assert same(inside, pairs.batch(0, 2))


def test_a_batch_can_be_cut_and_moved(photos):
    batch = SyntheticPairs(photos, size=(32, 32)).batch(0, 4)
    assert same(PairBatch.cat([batch.slice(0, 1), batch.slice(1, 4)]), batch)
    assert batch.to("meta").flow.device.type == "meta"
    with pytest.raises(ValueError, match="at least one"):
        PairBatch.cat([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "statics"}, "no preset is named 'statics'"),
        ({"preset": "dynamic"}, "ObjectStore"),
        ({"size": (8, 32)}, "height must be at least 16"),
        ({"size": (32,)}, "size must be"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_wrong_options(photos, options, message):
    with pytest.raises(ValueError, match=message):
        SyntheticPairs(photos, **options)


@pytest.mark.parametrize(
    "arguments", [{"batch_size": 5, "world_size": 2}, {"batch_size": 4, "world_size": 2, "rank": 2}]
)
def test_ranks_must_have_equal_shares(photos, arguments):
    with pytest.raises(ValueError, match="multiple of world_size"):
        SyntheticPairs(photos, size=(32, 32)).batch(0, **arguments)


def test_colours_change_the_images_alone(photos):
    with_colour = SyntheticPairs(photos, preset="static", size=(32, 32)).batch(0, 8)
    without = SyntheticPairs(photos, preset=plain("static"), size=(32, 32)).batch(0, 8)
    assert torch.equal(with_colour.flow, without.flow)
    assert torch.equal(with_colour.valid, without.valid)
    change = [
        (a - b).mean((1, 2, 3))
        for a, b in ((with_colour.reference, without.reference), (with_colour.query, without.query))
    ]
    assert (change[0] - change[1]).abs().mean() > 5
