"""Crops of data sets with flow: the flow fits the images, whatever the augmentation."""

import numpy as np
import pytest
import torch

from gocor.data.datasets import Pair
from gocor.data.io import write_flow, write_image
from gocor.ops.warp import warp
from gocor.training.flow_data import FlowPairs
from gocor.training.sources import open_datasets

from ..data.datasets.samples import write_sample


def smooth(height, width, seed):
    import cv2

    coarse = np.random.default_rng(seed).integers(0, 256, (height // 12, width // 12, 3), dtype=np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def make_pair(number=0, size=(96, 128), move=(6, -4)):
    """A picture that moves by whole pixels, with some pixels unknown and some hidden."""
    (height, width), (x, y) = size, move
    picture = smooth(height + 80, width + 80, number)
    query = picture[40 : 40 + height, 40 : 40 + width]
    reference = picture[40 + y : 40 + y + height, 40 + x : 40 + x + width]
    valid = np.ones((height, width), bool)
    valid[:10] = False
    occluded = np.zeros((height, width), bool)
    occluded[:, -10:] = True
    flow = np.zeros((height, width, 2), np.float32) + np.array(move, np.float32)
    flow[~valid] = 0
    return Pair(str(number), reference.copy(), query.copy(), flow, valid, occluded)


def test_a_batch_is_a_pure_function_and_ranks_share_it():
    pairs = [make_pair(i) for i in range(3)]
    source, other = (FlowPairs(pairs, size=(48, 64), seed=5) for _ in range(2))
    other.batch(3, 4)
    whole, again = source.batch(1, 4), other.batch(1, 4)
    parts = [other.batch(1, 4, rank=rank, world_size=2) for rank in range(2)]
    for name, tensor in vars(whole).items():
        assert torch.equal(tensor, getattr(again, name))
        assert torch.equal(tensor, torch.cat([getattr(part, name) for part in parts]))
    assert whole.reference.shape == (4, 3, 48, 64)
    assert not torch.equal(whole.reference, source.batch(2, 4).reference)
    assert not torch.equal(whole.reference, FlowPairs(pairs, size=(48, 64), seed=6).batch(1, 4).reference)


def test_every_pair_once_before_any_again():
    pairs = [make_pair(i, size=(64, 64), move=(i, 0)) for i in range(4)]
    seen = []

    class Noting(list):
        def __getitem__(self, index):
            seen.append(index)
            return super().__getitem__(index)

    source = FlowPairs(Noting(pairs), size=(32, 32))
    for step in range(4):
        source.batch(step, 2)
    assert sorted(seen[:4]) == sorted(seen[4:]) == [0, 1, 2, 3]


@pytest.mark.parametrize("augment", [True, False])
def test_the_query_warped_by_the_flow_is_the_reference(augment):
    """Up to colour: the augmented images are compared by correlation, the others by value."""
    source = FlowPairs([make_pair(i) for i in range(4)], size=(64, 80), seed=1, augment=augment)
    batch = source.batch(0, 16 if augment else 4)
    warped = warp(batch.query, batch.flow)
    for i in range(len(batch)):
        seen = batch.valid[i].expand(3, -1, -1)
        assert seen.float().mean() > 0.3
        ours, theirs = warped[i][seen], batch.reference[i][seen]
        if augment:
            assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.97
        else:
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    if augment:  # scaled, stretched and mirrored each in its own way
        lengths = torch.stack([batch.flow[i, :, batch.valid[i, 0]].mean(1) for i in range(len(batch))])
        assert lengths[:, 0].sign().unique().numel() == 2
        assert lengths.abs().std(0).min() > 0.5


def test_what_leaves_the_query_is_occluded_and_what_is_unknown_is_nothing():
    batch = FlowPairs([make_pair()], size=(96, 128), augment=False).batch(0, 1)
    valid, occluded = batch.valid[0, 0], batch.occluded[0, 0]
    assert not (valid & occluded).any()
    assert not (valid | occluded)[:10].any()  # unknown
    assert occluded[20:, -10:].all()  # hidden, says the data set
    assert (valid | occluded)[10:].all()
    shifted = FlowPairs([make_pair(move=(30, 0))], size=(96, 64), augment=False).batch(0, 1)
    assert shifted.occluded[0, 0, 20:, 34:].all()  # 34 + 30 is outside the 64 columns of the crop
    assert shifted.valid[0, 0, 20:, :34].all()


def test_small_images_are_enlarged():
    batch = FlowPairs([make_pair(size=(48, 64), move=(2, 0))], size=(96, 128), augment=False).batch(0, 1)
    assert batch.flow[0, 0][batch.valid[0, 0]].unique().tolist() == [4.0]


def test_data_sets_are_split(tmp_path):
    import json

    rows = []
    for i in range(4):
        pair = make_pair(i)
        write_image(tmp_path / f"{i}_reference.png", pair.reference)
        write_image(tmp_path / f"{i}_query.png", pair.query)
        write_flow(tmp_path / f"{i}.flo", pair.flow.transpose(2, 0, 1))
        rows.append({"reference": f"{i}_reference.png", "query": f"{i}_query.png", "flow": f"{i}.flo", "name": str(i)})
    (tmp_path / "pairs.json").write_text(json.dumps(rows))
    entry = f"manifest={tmp_path / 'pairs.json'}"
    assert [len(d) for d in open_datasets([entry]).values()] == [4]
    train, held_out = FlowPairs.open([entry], size=(32, 32))
    assert (len(train), len(held_out)) == (3, 1)
    assert held_out.pairs[0].name == "3"
    assert held_out.batch(0, 2).reference.shape == (2, 3, 32, 32)
    with pytest.raises(ValueError, match=r"no data set is named 'x'"):
        open_datasets(["x=."])


def test_a_validation_sees_every_data_set(tmp_path):
    """It takes the first held-out pairs, of which one large data set may have more than it takes."""
    names = [f"{number},a.png,b.png,a.flo\n" for number in range(400)]
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pairs.csv").write_text("name,reference,query,flow\n" + "".join(names))
    entries = [f"manifest={tmp_path / folder / 'pairs.csv'}" for folder in ("first", "second")]
    _, held_out = FlowPairs.open(entries, size=(32, 32))
    places = held_out.pairs.places
    assert len(places) == 40
    assert len({id(dataset) for dataset, _ in places[:8]}) == 2
    others = FlowPairs.open(entries, size=(32, 32), seed=1)[1].pairs.places
    assert [number for _, number in others] == [number for _, number in places]


def test_points_cannot_be_trained_on():
    pair = make_pair()
    points = Pair("sparse", pair.reference, pair.query, points=np.zeros((2, 4)))
    with pytest.raises(ValueError, match="sparse has points in place of a flow"):
        FlowPairs([points], size=(32, 32)).batch(0, 1)
    with pytest.raises(ValueError, match="no pairs"):
        FlowPairs([], size=(32, 32))


def test_one_data_set_twice_is_two_sources(tmp_path):
    root = write_sample("sintel", tmp_path)
    both, held_out = FlowPairs.open([f"sintel={root}", f"sintel:pass=final={root}"], size=(32, 32))
    one, _ = FlowPairs.open(["sintel"], root=root, size=(32, 32))
    assert (len(both), len(held_out)) == (2 * len(one), 2)
    passes = {pair.name: [] for pair in both.pairs}
    for pair in both.pairs:
        passes[pair.name].append(pair.reference.mean())
    assert all(len(values) == 2 for values in passes.values())
    assert list(open_datasets([f"sintel={root}", f"sintel:pass=final={root}"])) == ["sintel", "sintel:pass=final"]


def test_shares_hold_whatever_the_sizes_and_every_pair_is_used(tmp_path):
    from gocor.training.flow_data import _Mixture

    small, large = [f"a{i}" for i in range(3)], [f"b{i}" for i in range(50)]
    mixture = _Mixture([small, large], [3.0, 1.0], seed=5)
    drawn = [mixture.draw(number) for number in range(480)]
    assert sum(name.startswith("a") for name in drawn) == 360
    assert {name: drawn.count(name) for name in small} == dict.fromkeys(small, 120)
    assert len(set(drawn) & set(large)) == 50
    assert drawn == [_Mixture([small, large], [3.0, 1.0], seed=5).draw(number) for number in range(480)]
    assert drawn != [_Mixture([small, large], [3.0, 1.0], seed=6).draw(number) for number in range(480)]


def test_shares_on_the_command_line(tmp_path):
    root = write_sample("sintel", tmp_path)
    entries = [f"sintel:share=1={root}", f"sintel:pass=final,share=3={root}"]
    pairs, _ = FlowPairs.open(entries, size=(32, 32), seed=1)
    assert len(pairs.batch(0, 4)) == 4
    assert [int(places) for places in pairs.pairs.places] == [60, 180]
