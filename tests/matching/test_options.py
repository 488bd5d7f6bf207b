"""The options of matching: validated, resolved by the network, and stored beside results."""

import dataclasses
import inspect
from dataclasses import replace

import pytest
import torch

import gocor
from gocor.matching import MatchOptions
from gocor.matching.api import match_tensors
from gocor.models import create_model
from gocor.utils.precision import cpu_multiplies_bfloat16


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
        ("updates", 0, "updates must be at least 1, got 0"),
        ("second_look", 1, "second_look must be True, False or None, got 1"),
        ("precision", "fp8", "precision must be 'bf16', 'float32' or None, got 'fp8'"),
        ("confidence", "high", "confidence must be 'learnt', 'consistency' or None, got 'high'"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            MatchOptions(**{name: value})
    with pytest.raises(TypeError, match="iterations"):
        MatchOptions(iterations=3)


def test_the_network_decides_what_is_left_open():
    glunet, pwcnet = create_model("glunet-gocor-tiny"), create_model("pwcnet-gocor-tiny")
    own = {"confidence": "consistency", "second_look": False}
    assert MatchOptions().resolve(glunet) == MatchOptions(min_size=1024, align=True, **own)
    assert MatchOptions(min_size=0).resolve(pwcnet) == MatchOptions(min_size=0, align=False, **own)
    assert MatchOptions().resolve(create_model("recurrent-gocor-tiny")).confidence == "learnt"
    assert not MatchOptions().resolve(glunet, flips=True).align  # either aligned or mirrored
    pwcnet.name = ""
    with pytest.raises(ValueError, match="PWCNet gives no coarse matches"):
        MatchOptions(align=True).resolve(pwcnet)
    with pytest.raises(ValueError, match="PWCNet does not learn a confidence"):
        MatchOptions(confidence="learnt").resolve(pwcnet)
    with pytest.raises(ValueError, match="PWCNet cannot start from a flow, so there is no second look"):
        MatchOptions(second_look=True).resolve(pwcnet)


def test_as_a_dictionary():
    options = MatchOptions(iters_local=3, max_size=None)
    stored = {"iters_local": 3, "iters_global": None, "updates": None, "min_size": None, "max_size": None}
    stored |= {"align": None, "confidence": None, "precision": None, "second_look": None, "fast": False}
    assert options.as_dict() == stored
    assert MatchOptions(**stored) == options


def test_the_backward_flow_is_computed_only_on_request():
    network = create_model("pwcnet-gocor-tiny")
    images = 255 * torch.rand(2, 1, 3, 64, 64)
    calls = []
    network.register_forward_hook(lambda *_: calls.append(1))
    forward, backward, *_ = match_tensors(network, *images)
    assert (len(calls), backward.shape) == (2, forward.shape)
    alone, none, *_ = match_tensors(network, *images, backward=False)
    assert (len(calls), none) == (3, None)
    assert torch.equal(alone, forward)


def test_a_learnt_confidence_needs_no_backward_flow():
    network = create_model("recurrent-gocor-tiny")
    images = 255 * torch.rand(2, 1, 3, 48, 64)
    options = MatchOptions(min_size=0, align=False, precision="float32", second_look=False)
    found = match_tensors(network, *images, options)
    with torch.no_grad():
        expected = network.eval().predict(*images, min_size=0)
    assert found.backward is None
    for ours, theirs in ((found.forward, expected.flow), *zip(found[2:], expected[1:], strict=True)):
        torch.testing.assert_close(ours, theirs)
    checked = match_tensors(network, *images, replace(options, confidence="consistency"))
    assert checked.confidence is None
    assert checked.backward is not None


def test_precision_is_that_of_the_convolutions():
    network = create_model("recurrent-gocor-tiny").eval()
    images = 255 * torch.rand(2, 1, 3, 48, 64)
    flows = {
        name: match_tensors(
            network, *images, MatchOptions(min_size=0, align=False, precision=name, second_look=False)
        ).forward
        for name in ("bf16", "float32", None)
    }
    assert not torch.equal(flows["bf16"], flows["float32"])
    assert torch.equal(flows[None], flows["bf16" if cpu_multiplies_bfloat16() else "float32"])
    assert network.autocast_dtype is None
    network.autocast_dtype = torch.bfloat16
    with torch.inference_mode():
        assert torch.equal(network(*images, min_size=0), flows["bf16"])


def test_fast_neither_enlarges_nor_makes_all_updates_unless_told_to():
    network = create_model("recurrent-gocor-tiny")
    fast = MatchOptions(fast=True).resolve(network)
    assert (fast.min_size, fast.updates) == (0, network.fast_updates)
    assert network.fast_updates < network.updates
    assert not fast.second_look
    told = MatchOptions(fast=True, min_size=512, updates=3, second_look=True).resolve(network)
    assert (told.min_size, told.updates, told.second_look) == (512, 3, True)
    assert MatchOptions(fast=True).resolve(create_model("pwcnet-gocor-tiny")).updates is None
