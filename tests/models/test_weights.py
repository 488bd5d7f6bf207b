import os
import pickle
import re

import pytest
import torch

import gocor
from gocor.models import UntrainedWarning, create_model, load_weights, save_model
from gocor.models.weights import identify
from tests.models.test_parity import published_state

TINY = "glunet-gocor-tiny"


def load_tiny(weights):
    return gocor.load_model(TINY, weights, device="cpu")


def test_an_untrained_network_says_so():
    with pytest.warns(
        UntrainedWarning, match=f"{TINY} is untrained .untrained weights were requested.: its output is mean"
    ):
        load_tiny(None)
    with pytest.warns(UntrainedWarning, match=f"{TINY} is untrained .gocor has no trained weights for it"):
        load_tiny("default")


def test_vgg_features_are_there_and_frozen():
    with pytest.warns(UntrainedWarning):
        network = gocor.load_model("basenet", None, device="cpu")
    weight = network.pyramid.level_0[0].weight
    assert not weight.requires_grad
    assert weight.std() > 0.1  # not a fresh start
    features = network.pyramid(torch.randn(1, 3, 64, 64))
    assert [tuple(f.shape[1:]) for f in features] == [
        (64, 64, 64),
        (64, 32, 32),
        (128, 16, 16),
        (256, 8, 8),
        (512, 4, 4),
    ]


@pytest.mark.parametrize("half", [False, True])
def test_own_file_round_trip(half, tmp_path):
    network, path = create_model(TINY), tmp_path / "tiny.safetensors"
    save_model(network, path, half=half, recipe={"steps": 3}, data="none")
    other = load_tiny(path)
    for key, value in network.state_dict().items():
        shortened = half and value.is_floating_point() and "running_" not in key
        expected = value.half().to(value) if shortened else value
        assert torch.equal(other.state_dict()[key], expected), key
    assert not other.published
    assert list(tmp_path.iterdir()) == [path]


def test_shared_vgg_features_are_not_stored_again(tmp_path):
    with pytest.warns(UntrainedWarning):
        network = gocor.load_model("basenet", None, device="cpu")
    save_model(network, tmp_path / "basenet.safetensors", half=True)
    assert (tmp_path / "basenet.safetensors").stat().st_size < 9e6
    other = gocor.load_model("basenet", tmp_path / "basenet.safetensors", device="cpu")
    assert torch.equal(other.pyramid.level_4[4].weight, network.pyramid.level_4[4].weight)


def test_raw_wrapped_and_parallel_checkpoints(tmp_path):
    state = published_state("pwcnet")
    for index, content in enumerate(
        [state, {"state_dict": state}, {"state_dict": {f"module.{k}": v for k, v in state.items()}, "epoch": 1}]
    ):
        path = tmp_path / f"{index}.pth.tar"
        torch.save(content, path)
        network = create_model("pwcnet")
        load_weights(network, path)
        assert torch.equal(network.decoders[0].predict.weight, state["predict_flow6.weight"])


def test_torchvision_vgg16(tmp_path):
    network = create_model("basenet")
    numbers = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21)
    convolutions = [m for m in network.pyramid.modules() if isinstance(m, torch.nn.Conv2d)]
    state = {"classifier.0.weight": torch.zeros(3)}
    for number, layer in zip(numbers, convolutions, strict=True):
        state[f"features.{number}.weight"] = torch.randn_like(layer.weight)
        state[f"features.{number}.bias"] = torch.randn_like(layer.bias)
    torch.save(state, tmp_path / "vgg16.pth")
    with pytest.warns(UntrainedWarning, match="VGG-16 features only"):
        load_weights(network, tmp_path / "vgg16.pth")
    assert torch.equal(network.pyramid.level_4[4].weight, state["features.21.weight"])
    with pytest.raises(ValueError, match="which this network does not use"):
        load_weights(create_model("pwcnet"), tmp_path / "vgg16.pth")


@pytest.mark.parametrize("name", ["glunet", "glunet-gocor", "basenet-global-rq", "pwcnet-gocor", "semantic-glunet"])
def test_networks_are_known_by_their_keys(name):
    assert identify(published_state(name)) == name


class Malicious:
    def __reduce__(self):
        return print, ("this must never run",)


def test_what_is_not_a_checkpoint_of_the_network(tmp_path, capsys):
    path = tmp_path / "file.pth"
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        load_tiny(path)
    for content in (b"", b"not a checkpoint at all", b"\x80\x04."):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"file.pth is (damaged or not a checkpoint|empty)"):
            load_tiny(path)
    path.write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(ValueError, match="not a checkpoint, or it holds more than tensors"):
        load_tiny(path)
    torch.save({"state_dict": {"a": Malicious()}}, path)
    with pytest.raises(ValueError, match="more than tensors"):
        load_tiny(path)
    assert "never run" not in capsys.readouterr().out
    torch.save({"epoch": 3}, path)
    with pytest.raises(ValueError, match="holds no state dict"):
        load_tiny(path)
    torch.save({"some.weight": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"does not fit glunet-gocor-tiny: .* 1 unexpected \(some.weight\)"):
        load_tiny(path)


def test_a_checkpoint_of_another_network(tmp_path):
    torch.save(published_state("glunet-gocor"), tmp_path / "glunet_gocor.pth")
    with pytest.raises(ValueError, match=r"does not fit glunet: .*unexpected \(corr.corr_module.filter_"):
        load_weights(create_model("glunet"), tmp_path / "glunet_gocor.pth")
    save_model(create_model("glunet-tiny"), tmp_path / "tiny.safetensors")
    with pytest.raises(ValueError, match="does not fit glunet-gocor-tiny: it holds weights of glunet-tiny"):
        load_tiny(tmp_path / "tiny.safetensors")
    state = published_state("pwcnet")
    state["predict_flow6.weight"] = torch.zeros(1)
    torch.save(state, tmp_path / "cut.pth")
    network = create_model("pwcnet")
    before = network.decoders[1].predict.weight.clone()
    with pytest.raises(ValueError, match=r"predict_flow6\.weight should have"):
        load_weights(network, tmp_path / "cut.pth")
    assert torch.equal(network.decoders[1].predict.weight, before)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite(tmp_path, value):
    """Those of a training run that has diverged: every flow would be NaN."""
    network = create_model(TINY)
    name, parameter = next((n, p) for n, p in network.named_parameters() if "decoder" in n)
    with torch.no_grad():
        parameter.flatten()[-1] = value
    save_model(network, tmp_path / "diverged.safetensors")
    with pytest.raises(ValueError, match=f"holds values that are not finite, in {re.escape(name)}: use an earlier"):
        load_tiny(tmp_path / "diverged.safetensors")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser reads every file")
def test_weights_that_may_not_be_read(tmp_path):
    save_model(create_model(TINY), tmp_path / "mine.safetensors")
    (tmp_path / "mine.safetensors").chmod(0)
    with pytest.raises(PermissionError, match=r"mine\.safetensors"):
        load_tiny(tmp_path / "mine.safetensors")


def test_what_cannot_be_converted(tmp_path):
    source, target = tmp_path / "in.pth", tmp_path / "out.safetensors"
    torch.save({"features.0.weight": torch.zeros(64, 3, 3, 3)}, source)
    with pytest.raises(ValueError, match="VGG-16 features only"):
        gocor.models.convert(source, target, "glunet")
    save_model(create_model(TINY), source)
    with pytest.raises(ValueError, match="already a file of gocor"):
        gocor.models.convert(source, target)
    torch.save({"a": torch.zeros(1)}, source)
    with pytest.raises(ValueError, match="fits none of the networks of gocor"):
        gocor.models.convert(source, target)
    assert not target.exists()


def test_bad_names_devices_and_dtypes():
    with pytest.raises(ValueError, match=r"'glunet-gcor'; did you mean 'glunet-gocor'\? There are basenet"):
        gocor.load_model("glunet-gcor")
    with pytest.raises(ValueError, match="no model is named 'raft'; there are basenet"):
        gocor.load_model("raft")
    with pytest.raises(ValueError, match="device 'cuda:99' cannot be used here"), pytest.warns(UntrainedWarning):
        gocor.load_model(TINY, None, device="cuda:99")
    with pytest.raises(ValueError, match="device 'meta' cannot be used here"), pytest.warns(UntrainedWarning):
        gocor.load_model(TINY, None, device="meta")
    with pytest.raises(ValueError, match="dtype must be float32"), pytest.warns(UntrainedWarning):
        gocor.load_model(TINY, None, device="cpu", dtype=torch.int8)
