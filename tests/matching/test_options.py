"""The options of matching: validated, resolved by the network, and stored beside results."""

import dataclasses
import inspect

import pytest
import torch

import gocor
from gocor.matching import MatchOptions
from gocor.matching.api import match_tensors
from gocor.models import create_model


def test_the_options_of_match_are_those_of_the_class():
    arguments = inspect.signature(gocor.match).parameters
    for field in dataclasses.fields(MatchOptions):
        assert arguments[field.name].default == field.default


def test_wrong_values():
    for name, value, message in (
        ("iters_local", -1, "iters_local must be at least 0, got -1"),
        ("iters_global", 1.5, "iters_global must be an integer"),
        ("min_size", -1, "min_size must be at least 0"),
        ("max_size", 5, "max_size must be at least 16, got 5"),
        ("align", "yes", "align must be True, False or None, got 'yes'"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            MatchOptions(**{name: value})
    with pytest.raises(TypeError, match="iterations"):
        MatchOptions(iterations=3)


def test_the_network_decides_what_is_left_open():
    glunet, pwcnet = create_model("glunet-gocor-tiny"), create_model("pwcnet-gocor-tiny")
    assert MatchOptions().resolve(glunet) == MatchOptions(min_size=1024, align=True)
    assert MatchOptions(min_size=0).resolve(pwcnet) == MatchOptions(min_size=0, align=False)
    assert not MatchOptions().resolve(glunet, flips=True).align  # either aligned or mirrored
    pwcnet.name = ""
    with pytest.raises(ValueError, match="PWCNet gives no coarse matches"):
        MatchOptions(align=True).resolve(pwcnet)


def test_as_a_dictionary():
    options = MatchOptions(iters_local=3, max_size=None)
    stored = {"iters_local": 3, "iters_global": None, "min_size": None, "max_size": None, "align": None}
    assert options.as_dict() == stored
    assert MatchOptions(**stored) == options


def test_the_backward_flow_is_computed_only_on_request():
    network = create_model("pwcnet-gocor-tiny")
    images = 255 * torch.rand(2, 1, 3, 64, 64)
    calls = []
    network.register_forward_hook(lambda *_: calls.append(1))
    forward, backward = match_tensors(network, *images)
    assert (len(calls), backward.shape) == (2, forward.shape)
    alone, none = match_tensors(network, *images, backward=False)
    assert (len(calls), none) == (3, None)
    assert torch.equal(alone, forward)
