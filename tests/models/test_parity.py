"""Published checkpoints, loaded by their key names, give published flows on recorded pairs (float32, TF32 off)."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import gocor
from tests.conftest import relative_error

DATA = Path(__file__).parents[1] / "parity"
RECORDED = np.load(DATA / "networks.npz")
NETWORKS = sorted(name.removesuffix("/flow").replace("_", "-") for name in RECORDED if name.endswith("/flow"))

spec = importlib.util.spec_from_file_location("recipe", DATA / "recipe.py")
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)


def published_state(name: str) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(value) for key, value in recipe.published_state_dict(name).items()}


def recorded_pair(name: str) -> tuple[np.ndarray, np.ndarray]:
    pair = "pair_a" if name.startswith(("pwcnet", "glunet")) else "pair_b"
    return RECORDED[f"{pair}/reference"], RECORDED[f"{pair}/query"]


def test_every_recorded_network_is_ours():
    assert len(NETWORKS) == 9
    assert set(NETWORKS) <= set(gocor.list_models())


@pytest.mark.parametrize("name", NETWORKS)
def test_flow_of_a_published_checkpoint(name, tmp_path, device):
    checkpoint = tmp_path / "checkpoint.pth"
    torch.save({"state_dict": published_state(name), "epoch": 3}, checkpoint)
    network = gocor.load_model(name, checkpoint, device=device)
    assert network.published
    reference, query = recorded_pair(name)
    options = {"iters_local": 3, "iters_global": None if "pwc" in name else 3, "align": False}
    result = gocor.match(reference, query, network, **options)
    recorded = torch.from_numpy(RECORDED[f"{name.replace('-', '_')}/flow"])
    assert relative_error(result.flow, recorded[0]) < 1e-4

    converted = tmp_path / "converted.safetensors"
    assert gocor.models.convert(checkpoint, converted) == name  # found by its keys
    again = gocor.load_model(name, converted, device=device)
    assert again.published
    for key, value in network.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


@pytest.mark.parametrize("name", ["basenet", "basenet-gocor", "basenet-global-r", "basenet-global-rq"])
def test_estimates_of_every_level(name, device):
    network = gocor.models.create_model(name)
    gocor.models.published.load_published_state(network, published_state(name))
    network.to(device)
    images = [torch.from_numpy(image).permute(2, 0, 1)[None].float().to(device) for image in recorded_pair(name)]
    with torch.inference_mode():
        flows = network.levels(*network.prepare(*images, (256, 256)))
    for index, flow in enumerate(flows):
        recorded = torch.from_numpy(RECORDED[f"{name.replace('-', '_')}/est{index}"])
        assert relative_error(flow, recorded) < 1e-4


COUNTS = {  # trainable, and all
    "pwcnet": (None, 9_374_340),
    "pwcnet-gocor": (None, 9_374_505),
    "glunet": (5_955_224, 13_590_488),
    "glunet-gocor": (5_958_761, 13_594_025),
    "basenet": (3_825_082, 11_460_346),
    "basenet-gocor": (3_828_619, 11_463_883),
    "basenet-nc": (3_834_823, 11_470_087),
    "semantic-glunet": (5_964_965, 13_600_229),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_of_the_published_networks(name):
    network = gocor.models.create_model(name)
    trainable, everything = COUNTS[name]
    assert sum(p.numel() for p in network.parameters()) == everything
    if trainable is not None:
        assert sum(p.numel() for p in network.parameters() if p.requires_grad) == trainable
