"""A network registered from outside the package aligns, matches, trains, evaluates and runs from the command line."""

import json
import re
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gocor
from gocor import LocalGOCor
from gocor.data.datasets import open_dataset
from gocor.data.io import write_image
from gocor.evaluation import evaluate, open_benchmark
from gocor.models import MatchingNetwork, UntrainedWarning, create_model, load_model, register
from gocor.models.matching_layers import LocalMatching
from gocor.models.registry import REGISTRY
from gocor.models.resizing import resize_image, upsample
from gocor.ops.warp import pixel_grid, warp
from tests.cli.test_cli import runner
from tests.data.datasets.samples import write_sample
from tests.test_assets import PHOTOS
from tests.training.toy import toy_run

NAME = "own-network"


class OwnNetwork(MatchingNetwork):
    """Two local levels at 1/16 and 1/8, which see no motion before training; coarse matches by nearest colours."""

    has_global_layer = False
    loss_weights = (0.3, 0.7)
    training_defaults: ClassVar = {"size": (64, 64), "lr": 1e-3}
    coarse_side = 128

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 8, stride=8)
        self.deep = nn.Conv2d(8, 8, 2, stride=2)
        self.matching = LocalMatching(LocalGOCor(2))
        self.decoders = nn.ModuleList(nn.Conv2d(25, 2, 3, padding=1) for _ in range(2))
        for decoder in self.decoders:
            nn.init.zeros_(decoder.weight)
            nn.init.zeros_(decoder.bias)

    def round_size(self, height, width):
        return -(-height // 16) * 16, -(-width // 16) * 16

    def level_units(self, height, width):
        return [self.round_size(height, width)] * 2

    def prepare(self, reference, query, size):
        return tuple(resize_image(x, size, published=self.published) / 255 for x in (reference, query))

    def levels(self, *inputs, iters_local=None, iters_global=None, count=None):
        fine = [self.stem(x) for x in inputs]
        coarse = [self.deep(x) for x in fine]
        flow = 16 * self.decoders[0](self.matching(*coarse, iters_local))
        if count == 1:
            return [flow]
        up = upsample(flow, fine[0].shape[2:])
        return [flow, up + 8 * self.decoders[1](self.matching(fine[0], warp(fine[1], up / 8), iters_local))]

    def coarse_features(self, image):
        return (F.pixel_unshuffle(F.avg_pool2d(image, 2), 4),)  # 16×16 cells

    def coarse_flow(self, reference, query):
        first, second = (F.normalize((x - x.mean(1, keepdim=True)).flatten(2), dim=1) for x in (*reference, *query))
        nearest = (first.mT @ second).argmax(2).unflatten(1, (16, 16))
        target = torch.stack([nearest % 16, nearest // 16], 1)
        return 8 * (target - pixel_grid(16, 16, device=target.device))


@pytest.fixture(autouse=True)
def _registered():
    register(NAME, "a network from a test")(OwnNetwork)
    yield
    del REGISTRY[NAME]


@pytest.fixture(scope="module")
def photo():
    image = cv2.cvtColor(cv2.imread(str(PHOTOS / "reference.jpg")), cv2.COLOR_BGR2RGB)
    return cv2.resize(image, (160, 120), interpolation=cv2.INTER_AREA)


def test_it_is_listed_once():
    assert NAME in gocor.list_models()
    with pytest.raises(ValueError, match=f"a model named '{NAME}' is registered already"):
        register(NAME, "again")(OwnNetwork)


def test_it_aligns_and_matches(photo):
    """It sees no motion, so the whole flow of a rotated photo is that of the alignment."""
    turned = np.rot90(photo).copy()
    x, y = np.meshgrid(np.arange(160), np.arange(120))
    true = np.stack([y - x, 159 - x - y])
    with pytest.warns(UntrainedWarning):
        network = load_model(NAME, device="cpu")
    errors = [
        np.linalg.norm(gocor.match(photo, turned, network, align=align).flow.numpy() - true, axis=0)
        for align in (None, False)
    ]
    assert np.median(errors[0]) < 1
    assert np.median(errors[1]) > 20


def test_it_is_evaluated(tmp_path):
    network = create_model(NAME)
    data = open_dataset("middlebury", write_sample("middlebury", tmp_path))
    assert evaluate(network, data).metrics["aepe"] == pytest.approx(np.hypot(5, 3), rel=0.05)  # no motion
    assert np.isfinite(evaluate(network, data, align=True).metrics["aepe"])
    benchmark = open_benchmark("tss", write_sample("tss", tmp_path / "tss"))["tss"]  # whose protocol mirrors images
    assert evaluate(network, benchmark.dataset[:1], benchmark.protocol).rows


def test_it_trains_and_runs_from_the_command_line(photo, tmp_path, monkeypatch, capfd):
    toy_run(tmp_path / "run", model=NAME, steps=2, activation_checkpointing=True)
    weights = tmp_path / "run" / "final.safetensors"
    trained, initial = load_model(NAME, weights, device="cpu"), create_model(NAME)
    assert not torch.equal(trained.decoders[0].weight, initial.decoders[0].weight)
    for name in ("a", "b"):
        write_image(tmp_path / f"{name}.png", photo)
    run = runner(monkeypatch, capfd)
    images = tmp_path / "a.png", tmp_path / "b.png"
    code, _, err = run("match", *images, "-o", tmp_path / "out", "--model", NAME, "--weights", weights, "--quiet")
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "out" / "done.json").read_text())["model"] == NAME


def test_the_documented_network():
    guide = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", guide, re.S)[1], names)
    try:
        network = create_model("mynet-gocor")
        assert isinstance(network, names["MyNet"])
        result = gocor.match(np.zeros((20, 30, 3), np.uint8), np.zeros((40, 10, 3), np.uint8), network)
        assert result.flow.isfinite().all()
    finally:
        REGISTRY.pop("mynet-gocor", None)
