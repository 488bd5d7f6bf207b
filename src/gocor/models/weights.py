"""Weights: what ships, what a user trained, and published checkpoints, all read without running code from them."""

import json
import os
import warnings
from pathlib import Path
from typing import Any, TypeGuard

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..utils.files import write_bytes_atomically
from .backbones import VGGPyramid
from .network import MatchingNetwork
from .published import load_published_state, load_vgg
from .registry import REGISTRY, create_model

SHIPPED = Path(__file__).parents[1] / "weights"
FORMAT = "gocor-1"


class UntrainedWarning(UserWarning):
    """A network has no trained weights: what it returns means nothing."""


def load_model(
    name: str,
    weights: str | os.PathLike[str] | None = "default",
    *,
    device: str | torch.device = "auto",
    dtype: torch.dtype = torch.float32,
    fast: bool = False,
) -> MatchingNetwork:
    """A network that is ready to use.

    Args:
        name: one of `list_models()`.
        weights: `"default"` for those that ship, a path to a checkpoint (ours, as safetensors, or a published one), or
            `None` for start values. A network without trained weights says so by an `UntrainedWarning`.
        device: `"auto"` is a GPU where there is one.
        dtype: `float32`, `float64`, or a 16-bit type, which the network then uses by autocast.
        fast: for many pairs of few sizes on a GPU, see `MatchingNetwork.accelerate`: bfloat16 unless `dtype` is another
            16-bit type, and recorded passes.

    Returns:
        The network in evaluation mode.
    """
    network = create_model(name)
    if _is_vgg(network.pyramid):
        load_vgg(network.pyramid, _read(SHIPPED / "vgg16.safetensors")[0])
    path = SHIPPED / f"{name}.safetensors" if weights == "default" else weights
    if path is None or (weights == "default" and not Path(path).exists()):
        why = "start values were asked for" if weights is None else "no trained weights of it ship yet"
        warnings.warn(f"{name} is untrained ({why}): its output means nothing", UntrainedWarning, stacklevel=2)
    else:
        load_weights(network, path)
    if dtype in (torch.float16, torch.bfloat16):
        network.autocast_dtype = dtype
    elif dtype in (torch.float32, torch.float64):
        network.to(dtype)
    else:
        raise ValueError(f"dtype must be float32, float64, float16 or bfloat16, got {dtype}")
    network.to(choose_device(device))
    return network.accelerate(network.autocast_dtype or torch.bfloat16) if fast else network


def choose_device(device: str | torch.device) -> torch.device:
    """`"auto"` → a GPU where there is one; anything else as torch understands it, one clear error where it can't."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return chosen


def load_weights(network: MatchingNetwork, path: str | os.PathLike[str]) -> None:
    """Fill a network from a checkpoint: ours, a published one, or torchvision's VGG-16 (its features alone)."""
    state, metadata = _read(Path(path))
    try:
        if metadata.get("format") == FORMAT:
            _load_own(network, state, metadata)
        elif "features.0.weight" in state:
            if not isinstance(network.pyramid, VGGPyramid):
                raise ValueError("it holds VGG-16 features, which this network does not use")
            load_vgg(network.pyramid, state)
            warnings.warn(f"{path} holds VGG-16 features only: the rest is untrained", UntrainedWarning, stacklevel=2)
        else:
            load_published_state(network, state)
    except ValueError as error:
        raise ValueError(f"{path} does not fit {network.name}: {error}") from None


def save_model(network: MatchingNetwork, path: str | os.PathLike[str], *, half: bool = False, **card: Any) -> None:
    """Write a network as safetensors, frozen VGG-16 features left out where they are the ones that ship.

    Args:
        network: made by name.
        path: file to write, atomically.
        half: store float16, statistics of batch normalisation apart, which may be larger than it holds.
        **card: what else to tell in the metadata: data, recipe, metrics, ….
    """
    state = network.state_dict()
    shared = _has_shipped_vgg(network)
    if shared:
        state = {key: value for key, value in state.items() if not key.startswith("pyramid.")}
    tensors = {
        key: (value.half() if half and value.is_floating_point() and "running_" not in key else value)
        .contiguous()
        .cpu()
        for key, value in state.items()
    }
    metadata = {
        "format": FORMAT,
        "model": network.name,
        "published": json.dumps(network.published),
        "vgg16": "shared" if shared else "inside" if _is_vgg(network.pyramid) else "none",
        "licence": licence_of(network),
        **{key: value if isinstance(value, str) else json.dumps(value) for key, value in card.items()},
    }
    write_bytes_atomically(path, save(tensors, metadata))


def licence_of(network: MatchingNetwork) -> str:
    """That of our weights of a network, and where its frozen features are from if it has any."""
    features = "; VGG-16 features from torchvision (BSD-3-Clause), trained on ImageNet"
    return "Apache-2.0" + features if _is_vgg(network.pyramid) else "Apache-2.0"


def identify(state: dict[str, Tensor]) -> str:
    """Name of the network that a published state dict belongs to."""
    for name in REGISTRY:
        with torch.device("meta"):
            network = create_model(name)
        try:
            load_published_state(network, {key: value.to("meta") for key, value in state.items()})
        except ValueError:
            continue
        return name
    raise ValueError("the checkpoint belongs to none of our networks")


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], name: str | None = None) -> str:
    """Published checkpoint → our safetensors file; returns the network's name, found by its keys if not given."""
    state, metadata = _read(Path(source))
    if metadata.get("format") == FORMAT:
        raise ValueError(f"{source} is a file of ours already")
    if "features.0.weight" in state:
        raise ValueError(f"{source} holds VGG-16 features only: there is no network to convert")
    try:
        network = create_model(name or identify(state))
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    load_weights(network, source)
    save_model(network, target, licence="that of the checkpoint it was converted from")
    return network.name


def _load_own(network: MatchingNetwork, state: dict[str, Tensor], metadata: dict[str, str]) -> None:
    if metadata.get("model") != network.name:
        raise ValueError(f"it holds weights of {metadata.get('model')}")
    own = network.state_dict()
    if metadata.get("vgg16") == "shared":
        state = {key: value for key, value in own.items() if key.startswith("pyramid.")} | state
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unexpected:
        raise ValueError(f"missing {missing[:4]}, unexpected {unexpected[:4]}")
    for key, value in state.items():
        if value.shape != own[key].shape:
            raise ValueError(f"{key} has shape {tuple(value.shape)}, expected {tuple(own[key].shape)}")
    network.load_state_dict(state)
    if metadata.get("published") == "true":
        network.use_published_rules()


def _is_vgg(pyramid: nn.Module) -> TypeGuard[VGGPyramid]:
    """Whether features are those of VGG-16, not of a small stand-in for tests, or a network's own."""
    return isinstance(pyramid, VGGPyramid) and pyramid.channels[-1] == 512


def _has_shipped_vgg(network: MatchingNetwork) -> bool:
    if not _is_vgg(network.pyramid):
        return False
    other = VGGPyramid()
    load_vgg(other, _read(SHIPPED / "vgg16.safetensors")[0])
    own = network.pyramid.state_dict()
    return all(torch.equal(value, own[key].to(value)) for key, value in other.state_dict().items())


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file, safetensors or torch's own format, without running anything that is in it."""
    if not path.is_file():
        raise FileNotFoundError(f"no such checkpoint: {path}")
    try:
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's opinion on the pickle protocol
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged file can raise anything
        raise ValueError(
            f"{path} is not a checkpoint, or it holds more than tensors and cannot be read safely"
        ) from None
    for wrapper in ("state_dict", "model", "net"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise ValueError(f"{path} holds no state dict")
    return {str(key).removeprefix("module."): value for key, value in content.items()}, {}
