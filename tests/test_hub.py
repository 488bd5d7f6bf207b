"""`hubconf.py`: the networks through `torch.hub`."""

from pathlib import Path

import pytest
import torch

import gocor

ROOT = Path(__file__).parents[1]


def test_a_network_is_loaded_from_a_checkout():
    network = torch.hub.load(str(ROOT), "gocor", name="basenet-gocor", source="local", device="cpu")
    expected = gocor.load_model("basenet-gocor", device="cpu").state_dict()
    assert network.name == "basenet-gocor"
    assert not network.training
    assert all(torch.equal(value, expected[key]) for key, value in network.state_dict().items())


def test_errors_are_those_of_load_model():
    with pytest.raises(gocor.GOCorError, match="no model is named 'gone'"):
        torch.hub.load(str(ROOT), "gocor", name="gone", source="local")
