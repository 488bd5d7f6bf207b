"""Variants of networks: options by name, stored with the weights, and start values from the network without GOCor."""

import pytest
import torch

import gocor
from gocor.models import create_model, save_model
from gocor.models.registry import REGISTRY, list_models, sketch
from gocor.models.starting import start_from
from gocor.models.weights import load_weights
from gocor.modules import GlobalGOCor
from gocor.modules.gocor import GOCor

pytestmark = pytest.mark.filterwarnings("ignore::gocor.models.weights.UntrainedWarning")
CHANGED = {"iters": 7, "initializer": "zero", "regularizer": "relative", "bidirectional": True, "eta": 0.1}
SMALL = {"width": 0.125, "local.radius": 2}


def layers_of(network):
    return [module for module in network.modules() if isinstance(module, GOCor)]


def test_options_reach_the_layers():
    options = {
        "global": {"initializer": "zero", "eta": 0.1, "iters": 5},
        "local.radius": 3,
        "local.bidirectional": True,
    }
    network = create_model("basenet-gocor", {**options, "width": 0.125})
    coarse, local = layers_of(network)
    assert (coarse.options.initializer, coarse.options.eta, coarse.iters) == ("zero", 0.1, 5)
    assert (local.radius, local.bidirectional, local.options.eta) == (3, True, 0.0)
    assert network.decoder3.convs[0][0].in_channels == 49 + 2
    assert network.variant["global.eta"] == 0.1


GOCOR = [name for name in list_models() if layers_of(sketch(name))]


@pytest.mark.parametrize("name", GOCOR)
def test_every_network_with_gocor_takes_the_options_of_its_modules(name):
    kinds = {"global" if isinstance(layer, GlobalGOCor) else "local" for layer in layers_of(sketch(name))}
    for layer in layers_of(sketch(name, {f"{kind}.{key}": value for kind in kinds for key, value in CHANGED.items()})):
        assert {key: getattr(layer.options, key) for key in CHANGED} == CHANGED


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        (
            "basenet-gocor",
            "global.initialiser",
            "zero",
            r"has no option 'global.initialiser'; the nearest are global.init",
        ),
        ("pwcnet-gocor", "global.eta", 0.1, r"has no option 'global.eta'; the nearest are local.eta"),
        ("basenet-gocor", "global.eta", "x", "global.eta must be of type float, got 'x'"),
        ("basenet-gocor", "global.initializer", "magic", "initializer must be one of"),
        ("basenet-gocor", "global.regularizer", "none", "global.regularizer must be one of absolute, relative"),
        ("basenet", "width", 2, "width must be above 0 and at most 1, got 2"),
        ("basenet", "filtering", "all", "filtering must be one of none, mutual, consensus"),
    ],
)
def test_wrong_options(name, option, value, message):
    with pytest.raises(ValueError, match=message):
        sketch(name, {option: value})


def test_a_variant_comes_back_with_its_weights(tmp_path):
    variant = SMALL | {"global.initializer": "context", "global.eta": 0.1, "global.query_channels": [4, 8]}
    network = create_model("basenet-gocor", variant)
    row = save_model(network, tmp_path / "variant.safetensors")
    assert row.options == variant
    loaded = gocor.load_model("basenet-gocor", tmp_path / "variant.safetensors", device="cpu")
    assert loaded.variant == variant
    assert layers_of(loaded)[0].options == layers_of(network)[0].options
    images = 255 * torch.rand(2, 1, 3, 64, 64)
    assert torch.equal(loaded(*images), network(*images))
    other = gocor.load_model(
        "basenet-gocor", tmp_path / "variant.safetensors", options={"global.eta": 0.0}, device="cpu"
    )
    assert not torch.equal(other(*images), network(*images))  # what is asked for wins over what is stored
    with pytest.raises(
        ValueError, match=r"does not fit basenet-gocor width=0.125: it holds the variant global.eta=0.1"
    ):
        load_weights(create_model("basenet-gocor", {"width": 0.125}), tmp_path / "variant.safetensors")


@pytest.mark.parametrize("name", ["basenet-gocor", "glunet-gocor", "semantic-glunet-gocor", "pwcnet-gocor"])
def test_gocor_starts_from_the_same_network_without_it(name, tmp_path):
    base = create_model(REGISTRY[name].base, SMALL)
    save_model(base, tmp_path / "base.safetensors")
    network = create_model(name, SMALL)
    start = start_from(network, tmp_path / "base.safetensors")
    assert start.source == base.name
    assert start.taken + len(start.new) == len(network.state_dict())
    assert all("correlation" in key for key in start.new)
    for key, value in network.state_dict().items():
        assert key in start.new or torch.equal(value, base.state_dict()[key])
    assert f"took {start.taken} tensors of {base.name}; {len(start.new)} of " in start.describe()


def nvidia_names(network):
    """A PWC-Net state dict by the names of NVIDIA's checkpoint."""
    state = {}
    for key, value in network.state_dict().items():
        part, number, rest = key.split(".", 2)
        if part == "pyramid":
            level, index, leaf = rest.split(".", 2)
            order = ("aa", "a", "b") if level == "5" else ("a", "aa", "b")
            state[f"conv{int(level) + 1}{order[int(index)]}.{leaf}"] = value
        elif part == "decoders" and rest.startswith("convs"):
            _, index, leaf = rest.split(".", 2)
            state[f"conv{6 - int(number)}_{index}.{leaf}"] = value
        elif part == "decoders":
            state[f"predict_flow{6 - int(number)}.{rest.removeprefix('predict.')}"] = value
        elif part in ("upflow", "upfeat"):
            state[f"{'deconv' if part == 'upflow' else 'upfeat'}{6 - int(number)}.{rest}"] = value
        elif number == "predict":
            state[f"dc_conv7.{rest}"] = value
        else:
            index, leaf = rest.split(".", 1)
            state[f"dc_conv{int(index) + 1}.{leaf}"] = value
    return state


def test_pwcnet_gocor_starts_from_nvidias_names(tmp_path):
    base, network = create_model("pwcnet", SMALL), create_model("pwcnet-gocor", SMALL)
    torch.save({"state_dict": nvidia_names(base)}, tmp_path / "pwc_net.pth.tar")
    start = start_from(network, tmp_path / "pwc_net.pth.tar")
    assert (start.source, len(start.new)) == ("pwcnet", 30)
    assert torch.equal(network.context.predict.weight, base.context.predict.weight)
    assert torch.equal(network.pyramid.levels[5][0][0].weight, base.pyramid.levels[5][0][0].weight)
    assert network.published
    assert all(layer.scale_free_step for layer in layers_of(network))  # its GOCor modules are new


def test_a_variant_starts_from_another_and_its_layers_start_anew(tmp_path):
    save_model(create_model("basenet-gocor", SMALL), tmp_path / "plain.safetensors")
    network = create_model("basenet-gocor", SMALL | {"global.initializer": "simple"})
    start = start_from(network, tmp_path / "plain.safetensors")
    assert start.new == ("global_matching.correlation.initializer.beta",)
    assert start.dropped == ("global_matching.correlation.initializer.gamma",) or len(start.dropped) == 2


def test_other_weights_are_refused(tmp_path):
    save_model(create_model("glunet", SMALL), tmp_path / "glunet.safetensors")
    with pytest.raises(
        ValueError, match="cannot start pwcnet-gocor, which needs weights of pwcnet-gocor or pwcnet: it holds"
    ):
        start_from(create_model("pwcnet-gocor", SMALL), tmp_path / "glunet.safetensors")
    save_model(create_model("basenet", SMALL | {"width": 0.25}), tmp_path / "wide.safetensors")
    network = create_model("basenet-gocor", SMALL)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with pytest.raises(ValueError, match=r"it lacks context2.convs.0.0.bias of shape \(16,\) in place of \(32,\)"):
        start_from(network, tmp_path / "wide.safetensors")
    torch.save({"a": torch.ones(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="its parameters have other names"):
        start_from(network, tmp_path / "other.pth")
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
