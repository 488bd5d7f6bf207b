"""What modules have learnt."""

import cv2
import numpy as np
import pytest
import torch

from gocor.evaluation.inspect import MAX_DISTANCE, describe_layer, draw_layer, inspect_network
from gocor.models import BaseNet, create_model
from gocor.modules import GlobalGOCor, LocalFeatureCorrelation


def at(layer, curve, distance):
    return np.interp(distance, layer.distance, layer.curves[curve])


def test_start_values_are_the_published_ones():
    """Values of FACTS that were measured on the published modules at their start."""
    for layer in inspect_network(create_model("basenet-gocor-tiny")):
        assert at(layer, "target", 0) == pytest.approx(0.99996, abs=1e-5)
        assert at(layer, "target", 1) == pytest.approx(0.6065, abs=1e-4)
        assert at(layer, "mask", 0) == pytest.approx(0.979, abs=1e-3)
        assert at(layer, "mask", 2) == pytest.approx(0.5, abs=1e-3)
        assert at(layer, "mask", 4.5) == at(layer, "mask", MAX_DISTANCE) == pytest.approx(0.019, abs=1e-3)
        assert (layer.curves["weight"] == 1).all()
        assert all(np.array_equal(layer.curves[name], layer.start[name]) for name in layer.curves)


def test_what_was_learnt_is_shown_beside_the_start():
    network = create_model("basenet-gocor-tiny")
    module = network.local_matching.correlation
    with torch.no_grad():
        module.objective.weight[2] = 3.0  # the knot at distance 1
        module.regularization.fill_(0.5)
    glob, local = inspect_network(network)
    assert (glob.kind, local.kind) == ("global", "local")
    assert at(local, "weight", 1) == pytest.approx(3, abs=0.05)
    assert (local.start["weight"] == 1).all()
    assert local.scalars["regularization"] == 0.5
    assert local.scalars["initializer_beta_mean"] == 1
    centre = local.place
    assert local.maps["v⁺"].shape == (5, 5)
    assert local.maps["v⁺"][centre[1], centre[0] + 1] == pytest.approx(3, abs=1e-6)
    assert np.allclose(local.maps["y"], local.maps["v⁺"] * local.start_maps["y"] / local.start_maps["v⁺"])
    assert (glob.curves["weight"] == 1).all()


def test_heat_maps_are_centred_on_the_filter():
    layer = inspect_network(create_model("glunet-gocor-tiny"))[0]
    assert layer.maps["y"].shape == (16, 16)
    assert np.unravel_index(layer.maps["y"].argmax(), (16, 16)) == layer.place[::-1] == (7, 7)


def test_figures():
    layer = inspect_network(create_model("basenet-gocor-tiny"))[1]
    image = cv2.imdecode(np.frombuffer(draw_layer(layer), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape[1] == 775
    assert image.std() > 10
    described = describe_layer(layer)
    assert len(described["target"]) == len(described["distance"]) == 12


def test_the_quadratic_objective_has_nothing_learnt():
    layer = GlobalGOCor(64, query_objective=False, reference_objective="quadratic")
    network = BaseNet(layer, LocalFeatureCorrelation(2), radius=2, width=1 / 8, activation="leaky-relu")
    (found,) = inspect_network(network)
    assert found.curves["target"][0] == 1
    assert not found.curves["target"][1:].any()
    assert draw_layer(found).startswith(b"\x89PNG")


def test_networks_of_every_kind():
    assert len(inspect_network(create_model("pwcnet-gocor-tiny"))) == 5
    with pytest.raises(ValueError, match="glunet-tiny has no GOCor module"):
        inspect_network(create_model("glunet-tiny"))
