"""Loading and saving of weights: those that ship, a user's own, and published checkpoints. No file's code is run."""

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..utils.errors import InputError
from ..utils.files import open_file, write_bytes_atomically
from ..utils.options import flatten
from .backbones import VGGPyramid
from .network import MatchingNetwork
from .pickles import load_pickle
from .published import load_published_state, load_vgg
from .registry import REGISTRY, create_model, sketch
from .variants import Variant, describe_variant
from .zoo import FEATURES, WeightsRow, describe, shipped, shipped_file
from .zoo import SHIPPED as SHIPPED  # other modules import it from here

FORMAT = "gocor-1"
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class UntrainedWarning(UserWarning):
    """A network has no trained weights, so its output is meaningless."""


def load_model(
    name: str,
    weights: str | os.PathLike[str] | None = "default",
    *,
    options: Mapping[str, Any] | None = None,
    device: str | torch.device = "auto",
    dtype: torch.dtype = torch.float32,
    fast: bool = False,
) -> MatchingNetwork:
    """A network that is ready to use.

    Args:
        name: one of `list_models()`.
        weights: `"default"` for the weights that ship, the path of a checkpoint (ours, as safetensors, or a published
            one), or `None` for start values. A network without trained weights warns with an `UntrainedWarning`.
        options: options in which the network differs from the registered one, such as `{"global.eta": 0.1}`, see
            `gocor.models.variants`. Weights of ours know the options that they were trained with; others win over them.
        device: `"auto"` uses a GPU if there is one.
        dtype: `float32`, `float64`, or a 16-bit dtype, which the network then uses by autocast.
        fast: convolutions in bfloat16, unless `dtype` is another 16-bit dtype, where the device computes them faster;
            and on a GPU a CUDA graph for each image size. See `MatchingNetwork.accelerate`.

    Returns:
        The network in evaluation mode.
    """
    if weights == "default":
        path = shipped_file(name) if name in shipped() else None
    else:
        path = None if weights is None else Path(weights)
    state, metadata = ({}, {}) if path is None else read_state(path)
    network = create_model(name, variant_of(metadata) | flatten(options or {}))
    if _is_vgg(network.pyramid) and metadata.get("vgg16") != "inside":
        load_vgg(network.pyramid, read_state(shipped_file(FEATURES))[0])
    if path is None:
        why = "untrained weights were requested" if weights is None else "gocor has no trained weights for it"
        warnings.warn(f"{name} is untrained ({why}): its output is meaningless", UntrainedWarning, stacklevel=2)
    else:
        _fill(network, path, state, metadata)
    if dtype in (torch.float16, torch.bfloat16):
        network.autocast_dtype = dtype
    elif dtype in (torch.float32, torch.float64):
        network.to(dtype)
    else:
        raise InputError(f"dtype must be float32, float64, float16 or bfloat16, got {dtype}")
    network.to(choose_device(device))
    return network.accelerate(network.autocast_dtype or torch.bfloat16) if fast else network


def choose_device(device: str | torch.device) -> torch.device:
    """The device of a name that torch knows; `"auto"` is a GPU if there is one, and otherwise the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise InputError(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}") from None
    if chosen.type == "meta":
        raise InputError(f"device {device!r} cannot be used here: its tensors hold no values")
    return chosen


def load_weights(network: MatchingNetwork, path: str | os.PathLike[str]) -> None:
    """Fill a network from a checkpoint: ours, a published one, or torchvision's VGG-16, which has features alone.

    Weights of ours must be of the same variant of the network.
    """
    state, metadata = read_state(Path(path))
    stored, own = variant_of(metadata), json.loads(json.dumps(network.variant))
    if metadata.get("model") == network.name and stored != own:
        held, wanted = describe_variant(stored), describe_variant(own)
        raise InputError(f"{path} does not fit {network.name} {wanted}: it holds the variant {held}")
    _fill(network, path, state, metadata)


def _fill(
    network: MatchingNetwork, path: str | os.PathLike[str], state: dict[str, Tensor], metadata: dict[str, str]
) -> None:
    broken = next((key for key, value in state.items() if value.dtype in FLOATS and not value.isfinite().all()), None)
    if broken is not None:
        raise InputError(f"{path} holds values that are not finite, in {broken}: use an earlier checkpoint")
    try:
        if metadata.get("format") == FORMAT:
            _load_own(network, state, metadata)
        elif "features.0.weight" in state:
            if not isinstance(network.pyramid, VGGPyramid):
                raise InputError("it holds VGG-16 features, which this network does not use")
            load_vgg(network.pyramid, state)
            warnings.warn(
                f"{path} holds VGG-16 features only: all other parameters are untrained", UntrainedWarning, stacklevel=3
            )
        else:
            load_published_state(network, state)
    except ValueError as error:
        raise InputError(f"{path} does not fit {network.name}: {error}") from None


def save_model(
    network: MatchingNetwork, path: str | os.PathLike[str], *, half: bool = False, **card: Any
) -> WeightsRow:
    """Write the weights of a network as safetensors. VGG-16 features that ship are not stored again.

    Args:
        network: created by name.
        path: the file to write, atomically.
        half: store float16. The statistics of batch normalisation, which may exceed its range, stay as they are.
        **card: further entries of the metadata: data, recipe, command, steps, seed, time, metrics, ….

    Returns:
        What is known about the file. Weights ship as the file and this row, see `zoo`.
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
    variant = {"options": network.variant} if network.variant else {}
    facts = {"model": network.name, **variant, "licence": licence_of(network), **card}
    metadata = {
        "format": FORMAT,
        "published": json.dumps(network.published),
        "vgg16": "shared" if shared else "inside" if _is_vgg(network.pyramid) else "none",
        **{key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()},
    }
    content = save(tensors, metadata)
    write_bytes_atomically(path, content)
    summary = REGISTRY[network.name].description if network.name in REGISTRY else ""
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return describe(facts, content, summary=summary, parameters=parameters)


def licence_of(network: MatchingNetwork) -> str:
    """The licence of weights that we train, and of the frozen VGG-16 features if the network has them."""
    features = "; VGG-16 features from torchvision (BSD-3-Clause), trained on ImageNet"
    return "Apache-2.0" + features if _is_vgg(network.pyramid) else "Apache-2.0"


def identify(state: dict[str, Tensor]) -> str:
    """Name of the network that a published state dict belongs to."""
    for name in REGISTRY:
        try:
            load_published_state(sketch(name), {key: value.to("meta") for key, value in state.items()})
        except ValueError:
            continue
        return name
    raise InputError("the checkpoint fits none of the networks of gocor")


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], name: str | None = None) -> str:
    """Convert a published checkpoint to a safetensors file of ours.

    Args:
        source: the published checkpoint.
        target: the file to write.
        name: name of the network; by default the network whose parameter names the checkpoint has.

    Returns:
        The name of the network.
    """
    state, metadata = read_state(Path(source))
    if metadata.get("format") == FORMAT:
        raise InputError(f"{source} is already a file of gocor: it needs no conversion")
    if "features.0.weight" in state:
        raise InputError(f"{source} holds VGG-16 features only: there is no network to convert")
    try:
        network = create_model(name or identify(state))
    except ValueError as error:
        raise InputError(f"{source}: {error}") from None
    load_weights(network, source)
    save_model(network, target, licence="that of the checkpoint it was converted from")
    return network.name


def variant_of(metadata: Mapping[str, str]) -> Variant:
    """The options of the variant that a file of ours holds, empty for other files."""
    return dict(json.loads(metadata.get("options", "{}")))


def with_shared_features(
    network: MatchingNetwork, state: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> dict[str, Tensor]:
    """The tensors of a file of ours; VGG-16 features that it does not repeat are the network's own."""
    own = network.state_dict() if metadata.get("vgg16") == "shared" else {}
    return {key: value for key, value in own.items() if key.startswith("pyramid.")} | dict(state)


def _load_own(network: MatchingNetwork, state: dict[str, Tensor], metadata: dict[str, str]) -> None:
    if metadata.get("model") != network.name:
        raise InputError(f"it holds weights of {metadata.get('model')}")
    own, state = network.state_dict(), with_shared_features(network, state, metadata)
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unexpected:
        raise InputError(f"missing {missing[:4]}, unexpected {unexpected[:4]}")
    for key, value in state.items():
        if value.shape != own[key].shape:
            raise InputError(f"{key} has shape {tuple(value.shape)}, expected {tuple(own[key].shape)}")
    network.load_state_dict(state)
    if metadata.get("published") == "true":
        network.use_published_rules()


def _is_vgg(pyramid: nn.Module) -> TypeGuard[VGGPyramid]:
    """Whether a network's features are the full VGG-16, not a small variant for tests or a pyramid of its own."""
    return isinstance(pyramid, VGGPyramid) and pyramid.channels[-1] == 512


def _has_shipped_vgg(network: MatchingNetwork) -> bool:
    if not _is_vgg(network.pyramid):
        return False
    other = VGGPyramid()
    load_vgg(other, read_state(shipped_file(FEATURES))[0])
    own = network.pyramid.state_dict()
    return all(torch.equal(value, own[key].to(value)) for key, value in other.state_dict().items())


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors or torch file. Pickled code in it is never run."""
    if not path.exists():
        raise FileNotFoundError(f"no such checkpoint: {path}")
    open_file(path).close()  # safetensors says of a file that may not be read that it does not exist
    try:
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError:
        pass
    content = load_pickle(path)
    for wrapper in ("state_dict", "model", "net"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise InputError(f"{path} holds no state dict")
    return {str(key).removeprefix("module."): value for key, value in content.items()}, {}
