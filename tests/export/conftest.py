"""A small network, exported once for all tests of this folder."""

import warnings

import pytest
import torch

from gocor.export import export_model
from gocor.models import load_model

SIDE = 64


def small_network():
    """A recurrent network of two updates and one iteration: exporting more would take longer, not test more."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = load_model("recurrent-gocor-tiny", None, device="cpu")
    network.updates, network.filters.iters, network.start.iters = 2, 1, 1
    network.fixed_side = SIDE  # as in a graph: updates do not end early
    return network


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """An ONNX file, and what `export_model` says about it."""
    pytest.importorskip("onnxscript", reason="needs the extra `export`")
    return export_model(small_network(), tmp_path_factory.mktemp("export") / "model.onnx", size=SIDE, weights=None)
