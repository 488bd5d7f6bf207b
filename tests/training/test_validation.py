"""Validation: numbers that are known, pictures, data sets."""

import numpy as np
import pytest
import torch
from torch import nn

from gocor.models import create_model
from gocor.training import train
from gocor.training.distributed import Group
from gocor.training.validation import dataset_scores, draw_pairs, validate

from .test_flow_data import test_data_sets_are_split as write_data_set
from .test_resume import records
from .toy import Toy, toy_config, toy_sources

ALONE = Group(0, 1, torch.device("cpu"))


@pytest.fixture
def still():
    """A network that sees no motion."""
    network = create_model("pwcnet-gocor-tiny")
    for decoder in [*network.decoders, network.context]:
        nn.init.zeros_(decoder.predict.weight)
    return network


def test_the_error_of_seeing_no_motion_is_the_motion(still, tmp_path):
    source = Toy(reach=4)
    metrics, picture = validate(still, source, toy_config(tmp_path, batch=2, validation_pairs=4), ALONE)
    batches = [source.batch(index, 2) for index in range(2)]
    lengths = torch.cat([batch.flow.norm(dim=1, keepdim=True)[batch.valid] for batch in batches])
    assert metrics["epe"] == pytest.approx(lengths.mean().item(), rel=1e-5)
    for t in (1, 3, 5):
        assert metrics[f"pck{t}"] == pytest.approx(100 * (lengths <= t).float().mean().item(), abs=1e-3)
    assert picture.shape == (2 * 64, 5 * 64, 3)
    assert picture.dtype == np.uint8


def test_scores_of_a_callable_are_recorded(tmp_path):
    config = toy_config(tmp_path, steps=2, validate_every=1)
    seen = []

    def evaluate(network):
        seen.append(network.training)
        return {"set.aepe": 2.5}

    train(config, sources=toy_sources(config), evaluate=evaluate, quiet=True)
    kinds = [(record["step"], record["kind"]) for record in records(tmp_path) if record["kind"] != "train"]
    assert kinds == [(1, "validation"), (1, "evaluation"), (2, "validation"), (2, "evaluation")]
    assert records(tmp_path)[-1]["set.aepe"] == 2.5
    assert "| set.aepe | 2.5 |" in (tmp_path / "card.md").read_text()
    assert seen == [False, False]


def test_the_picture_shows_the_pair():
    pairs = Toy((32, 32)).batch(0, 2)
    sheet = draw_pairs(pairs, pairs.flow.contiguous())
    assert sheet.shape == (64, 160, 3)
    reference, query, warped, flow, true = np.split(sheet[:32].astype(int), 5, 1)
    seen = pairs.valid[0, 0].numpy()
    assert np.abs(reference - query).mean() > 5
    assert np.abs(reference - warped)[seen].max() <= 1  # the true flow brings the query onto the reference
    assert (flow == true)[seen].all()
    assert (true[~seen] == 0).all()


def test_data_sets_are_scored(still, tmp_path):
    write_data_set(tmp_path)
    config = toy_config(tmp_path, eval=[f"manifest={tmp_path / 'pairs.json'}"])
    scores = dataset_scores(config)(still)
    assert scores.keys() == {"manifest.aepe", "manifest.pck1", "manifest.pck3", "manifest.pck5"}
    moved = np.zeros((96, 128), bool)  # all but ten rows move by (6, -4); targets outside do not count
    moved[10:, :-6] = True
    share = moved.sum() / (moved.sum() + 10 * 128)
    assert scores["manifest.aepe"] == pytest.approx(share * 52**0.5, rel=1e-6)
    assert scores["manifest.pck5"] == pytest.approx(100 * (1 - share), rel=1e-6)
