"""The model card: what was trained, on what, how, for how long, and how good it is."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .._version import __version__
from ..models.network import MatchingNetwork
from ..models.weights import licence_of, save_model
from ..utils.files import write_bytes_atomically
from .config import TrainConfig

HALF_LIMIT = 65504.0  # the largest float16


def make_card(
    config: TrainConfig, *, data: str, step: int, seconds: float, metrics: dict[str, float], device: torch.device
) -> dict[str, Any]:
    """The facts of a run."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {
        "data": data,
        "recipe": {key: value for key, value in asdict(config).items() if value is not None},
        "command": shlex.join(["gocor", *sys.argv[1:]]),
        "seed": config.seed,
        "steps": step,
        "time": f"{seconds / 60:.1f} minutes on {name}",
        "metrics": {key: round(value, 4) for key, value in metrics.items()},
        "made_with": f"gocor {__version__}, torch {torch.__version__}",
    }


def export(network: MatchingNetwork, path: Path, card: dict[str, Any]) -> None:
    """Write weights as safetensors, float16 where all of them fit, with the card in the metadata."""
    values = (value for value in network.state_dict().values() if value.is_floating_point())
    largest = torch.stack([value.abs().amax() for value in values if value.numel()]).max()
    save_model(network, path, half=bool(largest < HALF_LIMIT), **card)


def write_card(path: Path, network: MatchingNetwork, card: dict[str, Any]) -> None:
    """Write the card as Markdown."""
    metrics = "\n".join(f"| {key} | {value} |" for key, value in card["metrics"].items())
    recipe = "\n".join(f"{key} = {json.dumps(value)}" for key, value in card["recipe"].items())
    text = f"""# {network.name}

- Data: {card["data"]}
- Steps: {card["steps"]}
- Seed: {card["seed"]}
- Time: {card["time"]}
- Made with: {card["made_with"]}
- Licence: {licence_of(network)}

## Metrics

On held-out pairs: mean end-point error in pixels, and percentages of pixels within 1, 3 and 5 pixels of the truth.

| metric | value |
|---|---|
{metrics}

## Command

```
{card["command"]}
```

## Recipe

```toml
{recipe}
```
"""
    write_bytes_atomically(path, text.encode())
