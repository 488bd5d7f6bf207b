"""Start values of a training run from other weights: those of the same network, or of the same one without GOCor."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from ..utils.errors import InputError
from .network import MatchingNetwork
from .published import translate_name, translate_published
from .registry import REGISTRY
from .weights import FORMAT, load_weights, read_state, variant_of, with_shared_features

COUNTER = "num_batches_tracked"  # tensor of batch normalisation that published checkpoints may lack


@dataclass(frozen=True)
class Start:
    """Which tensors a network took from a checkpoint.

    Attributes:
        source: name of the network that the checkpoint belongs to.
        taken: number of tensors that were taken.
        new: names of the tensors that start anew; all belong to correlation layers or to parts that were added later.
        dropped: names of the checkpoint's tensors that were not used; all belong to its correlation layers.
    """

    source: str
    taken: int
    new: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def describe(self) -> str:
        """One line for the log."""
        text = f"took {self.taken} tensors of {self.source}"
        if self.new:
            text += f"; {len(self.new)} of {_parts(self.new)} start anew"
        return text + (f"; {len(self.dropped)} of {_parts(self.dropped)} were dropped" if self.dropped else "")


def start_from(network: MatchingNetwork, path: str | os.PathLike[str]) -> Start:
    """Fill a network from a checkpoint of the same network, or of the network that it extends (`register(base=…)`).

    Tensors outside of the correlation layers must all be there and fit. Tensors of correlation layers are taken where
    name and shape agree, and start anew elsewhere. So PWC-Net-GOCor starts from PWC-Net, and a variant from another
    variant. Parts that were added to a network later (`MatchingNetwork.added_parts`) may be missing too. Checkpoints
    may be ours or have published names; for PWC-Net those are NVIDIA's.

    Args:
        network: created by name; it is not changed if the checkpoint does not fit.
        path: path of the checkpoint.
    """
    state, metadata = read_state(Path(path))
    if metadata.get("format") != FORMAT and "features.0.weight" in state:
        load_weights(network, path)
        return Start("VGG-16", len(network.pyramid.state_dict()))
    try:
        if metadata.get("format") != FORMAT:
            return _from_published(network, state)
        same = metadata["model"] == network.name and variant_of(metadata) == network.variant
        if same and not _lacks_added_parts(network, state):
            load_weights(network, path)
            return Start(network.name, len(network.state_dict()))
        if metadata["model"] not in _sources(network.name):
            raise InputError(f"it holds weights of {metadata['model']}")
        return _take(network, with_shared_features(network, state, metadata), metadata["model"])
    except ValueError as error:
        reason = str(error).partition(f" does not fit {network.name}: ")[2] or str(error)
        sources = " or ".join(_sources(network.name))
        raise InputError(f"{path} cannot start {network.name}, which needs weights of {sources}: {reason}") from None


def _lacks_added_parts(network: MatchingNetwork, state: Mapping[str, Tensor]) -> bool:
    parts = tuple(f"{part}." for part in network.added_parts)
    return any(key.startswith(parts) and key not in state for key in network.state_dict())


def _sources(name: str) -> list[str]:
    """The network itself and those that it extends."""
    base = REGISTRY[name].base if name in REGISTRY else None
    return [name, *([base] if base in REGISTRY else [])]


def _from_published(network: MatchingNetwork, state: dict[str, Tensor]) -> Start:
    """Take tensors with published names: of this network, or of the one that it extends."""
    translated, unexpected = translate_published(network, state)
    if not translated:
        raise InputError("its parameters have other names")
    rules = network.published_rules
    others = {translate_name(key, rules) or key: state[key] for key in unexpected}  # of the base's correlation layers
    counters = {key: value for key, value in network.state_dict().items() if key.endswith(COUNTER)}
    start = _take(network, counters | others | translated, network.name)
    if not start.new:
        network.use_published_rules()
        return start
    network.use_published_images()
    return replace(start, source=_sources(network.name)[-1])


def _take(network: MatchingNetwork, state: dict[str, Tensor], source: str) -> Start:
    layers = tuple(f"{name}." for name in (*network.correlation_names(), *network.added_parts))
    own = network.state_dict()
    taken = {key: value for key, value in state.items() if key in own and own[key].shape == value.shape}
    new = sorted(own.keys() - taken.keys())
    dropped = sorted(state.keys() - taken.keys())
    for what, keys in (("it lacks", new), ("it also has", dropped)):
        outside = [key for key in keys if not key.startswith(layers)]
        if outside:
            shapes = [tuple(values[outside[0]].shape) for values in (own, state) if outside[0] in values]
            detail = f" of shape {shapes[0]} in place of {shapes[1]}" if len(shapes) == 2 else ""
            raise InputError(f"{what} {outside[0]}{detail}")
    network.load_state_dict(own | taken)
    return Start(source, len(taken), tuple(new), tuple(dropped))


def _parts(names: tuple[str, ...]) -> str:
    """The parts of a network that tensors belong to, such as `matching.0 to matching.4`."""
    parts = list(dict.fromkeys(_part(name) for name in names))
    return parts[0] if len(parts) == 1 else f"{parts[0]} to {parts[-1]}"


def _part(name: str) -> str:
    """The layer that a tensor of a correlation layer belongs to, or the network's part that any other belongs to."""
    layer, separator, _ = name.partition(".correlation")
    return layer if separator else name.partition(".")[0]
