"""Export of trained weights: the safetensors file, and its row for the table of weights."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .._version import __version__
from ..models.network import MatchingNetwork
from ..models.weights import save_model
from ..models.zoo import WeightsRow
from ..utils.files import write_bytes_atomically
from .config import TrainConfig

FLOAT16_MAX = torch.finfo(torch.float16).max


def this_command() -> str:
    """The command line of this process: `gocor …`, or the program that uses this package."""
    program = Path(sys.argv[0])
    ours = program.stem == "gocor" or program.parent.name == "gocor"  # the script, or `python -m gocor`
    return shlex.join(["gocor", *sys.argv[1:]] if ours else ["python", *sys.argv])


def run_facts(
    config: TrainConfig,
    *,
    command: str,
    data: str,
    step: int,
    seconds: float,
    metrics: dict[str, float],
    device: torch.device,
) -> dict[str, Any]:
    """What the metadata of exported weights say about the run."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {
        "data": data,
        "recipe": {key: value for key, value in asdict(config).items() if value not in (None, {})},
        "command": command,
        "seed": config.seed,
        "steps": step,
        "time": f"{seconds / 60:.1f} minutes on {name}",
        "metrics": {key: round(value, 4) for key, value in metrics.items()},
        "made_with": f"gocor {__version__}, torch {torch.__version__}",
    }


def export(network: MatchingNetwork, path: Path, facts: dict[str, Any]) -> WeightsRow:
    """Write weights as safetensors, in float16 if all values fit, and their row as a TOML file beside them."""
    values = (value for value in network.state_dict().values() if value.is_floating_point())
    largest = torch.stack([value.abs().amax() for value in values if value.numel()]).max()
    row = save_model(network, path, half=bool(largest < FLOAT16_MAX), **facts)
    write_bytes_atomically(path.with_suffix(".toml"), row.to_toml().encode())
    return row
