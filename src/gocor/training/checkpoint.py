"""Training checkpoints: the whole state of a run in one file, which is replaced atomically."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..models.network import MatchingNetwork
from ..models.pickles import load_pickle
from ..models.starting import start_from
from ..models.zoo import shipped, shipped_file
from ..utils.errors import InputError
from ..utils.files import write_bytes_atomically
from .step import TrainStep

FILE = "last.pt"
FORMAT = "gocor-training-1"
SHIPPED = "default"  # in place of a path: the weights that ship


@dataclass
class Progress:
    """Progress of a run.

    Attributes:
        step: number of steps that were taken.
        seconds: seconds of training, over all parts of the run.
        best: lowest validation error so far, in pixels.
        best_step: step at which it was reached.
        validated: step of the last validation.
    """

    step: int = 0
    seconds: float = 0.0
    best: float = float("inf")
    best_step: int = 0
    validated: int = 0


def save_checkpoint(folder: Path, step: TrainStep, progress: Progress) -> None:
    """Write the training state, random number generators included, to `last.pt`."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "model": step.network.name,
        "variant": step.network.variant,
        "config": step.config.to_toml(),
        "progress": dict(vars(progress)),
        "network": step.network.state_dict(),
        "average": step.average.state_dict(),
        "optimizer": step.optimizer.state_dict()["state"],
        "totals": step.totals,
        "skipped": step.skipped,
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state(step.group.device) if step.group.device.type == "cuda" else None,
    }
    data = io.BytesIO()
    torch.save(content, data)  # in memory first, because torch does not report a full disk
    write_bytes_atomically(folder / FILE, data.getvalue())


def load_checkpoint(folder: Path, step: TrainStep) -> Progress:
    """Restore the training state, random number generators included, from `last.pt`."""
    path = folder / FILE
    content = read_checkpoint(path)
    if content["model"] != step.network.name:
        raise InputError(f"{path} belongs to a run of {content['model']}, not of {step.network.name}")
    if content.get("variant", {}) != step.network.variant:
        raise InputError(
            f"{path} belongs to a run with other options of the network: they cannot change when it is resumed"
        )
    try:
        return _restore(content, step)
    except InputError as error:
        raise InputError(f"{path} {error}") from None
    except (ArithmeticError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from None


def _restore(content: dict[str, Any], step: TrainStep) -> Progress:
    optimizer = step.optimizer.state_dict()
    if {k: set(v) for k, v in content["optimizer"].items()} != {k: set(v) for k, v in optimizer["state"].items()}:
        raise InputError("holds the state of another optimiser")
    progress = Progress(**content["progress"])
    if not all(isinstance(value, (int, float)) for value in vars(progress).values()):
        raise InputError("is damaged: the progress of a run must be numbers")
    step.network.load_state_dict(content["network"])
    step.average.load_state_dict(content["average"])
    with torch.no_grad():  # in place: a CUDA graph may refer to these tensors
        for key, parameter in enumerate(p for group in step.optimizer.param_groups for p in group["params"]):
            for name, value in step.optimizer.state[parameter].items():
                value.copy_(content["optimizer"][key][name])
        step.totals.copy_(content["totals"])
        step.skipped.copy_(content["skipped"])
    torch.set_rng_state(content["rng"])
    if content["cuda_rng"] is not None and step.group.device.type == "cuda":
        torch.cuda.set_rng_state(content["cuda_rng"], step.group.device)
    return progress


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a training checkpoint. Pickled code in it is never run."""
    content = load_pickle(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is no training checkpoint of this version")
    if not isinstance(content.get("model"), str):
        raise InputError(f"{path} is damaged: it does not name its network")
    return content


def start_network(network: MatchingNetwork, path: str | os.PathLike[str]) -> str:
    """Fill a network from other weights, see `models.starting`, or from the EMA of a training checkpoint.

    Args:
        network: created by name.
        path: path of the weights; `"default"` for those that ship.

    Returns:
        What was taken and what starts anew, in one line.
    """
    if str(path) == SHIPPED:
        if network.name not in shipped():
            raise InputError(f"no weights of {network.name} are part of gocor: give a checkpoint to start from")
        path = shipped_file(network.name)
    content = load_pickle(Path(path)) if Path(path).suffix == ".pt" else None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return start_from(network, path).describe()
    if content.get("model") != network.name or content.get("variant", {}) != network.variant:
        raise InputError(
            f"{path} does not fit {network.name}: it holds weights of {content.get('model')}, or a variant"
        )
    try:
        network.load_state_dict(content["average"])
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise InputError(f"{path} does not fit {network.name}: {' '.join(str(error).split())[:200]}") from None
    return f"took the EMA of a run of {network.name}"
