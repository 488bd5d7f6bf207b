"""Small runs of training, matching and evaluation, and what of their results must not depend on disturbances."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from gocor.data.io import write_image
from gocor.models import load_model, save_model
from gocor.training.checkpoint import read_checkpoint

from ..data.datasets.samples import write_sample
from ..training.test_flow_data import smooth

MODEL = "pwcnet-gocor-tiny"
TIMES = ("seconds", "pairs_per_second", "minutes", "time", "sha256")


@dataclass(frozen=True)
class Job:
    """A command that writes to the folder `out` of the current folder, and continues when it is run again.

    Attributes:
        name: train, match, hdf5 (match into one file) or eval.
        command: arguments of `gocor`.
        exclusive: whether a second process into the same folder is refused.
    """

    name: str
    command: tuple[str, ...]
    exclusive: bool


def make_jobs(folder: Path) -> list[Job]:
    """Write photos, pairs and weights to a folder; returns a job of each kind that reads them."""
    photos, manifest = folder / "photos", write_sample("manifest", folder / "data")
    photos.mkdir()
    for number in range(4):
        write_image(photos / f"{number}.png", smooth(72, 96, number))
    rows = "".join(f"photos/{number}.png,photos/{number + 1}.png\n" for number in range(3))
    (folder / "pairs.csv").write_text("reference,query\n" + rows)
    weights = folder / "mine.safetensors"
    save_model(load_model(MODEL, None, device="cpu"), weights)
    every = {"log_every": 1, "checkpoint_every": 1, "validate_every": 2, "validation_pairs": 2}
    settings = [word for key, value in every.items() for word in ("--set", f"{key}={value}")]
    small = ("--model", MODEL, "--size", "64", "--batch", "2", "--steps", "4", "--device", "cpu")
    # In a larger batch, rounding would depend on the pairs that share it, and these on what is finished already.
    network = ("--model", MODEL, "--weights", str(weights), "--device", "cpu", "--batch", "1")
    models = ("--model", "identity", "--model", f"{MODEL}:{weights}", "--device", "cpu")
    return [
        Job("train", ("train", "--data", str(photos), *small, *settings, "-o", "out", "--resume"), True),
        Job("match", ("match", str(folder / "pairs.csv"), *network, "-o", "out"), False),
        Job("hdf5", ("match", str(folder / "pairs.csv"), *network, "-o", "out/results.h5"), True),
        Job("eval", ("eval", "manifest", "--root", str(manifest), *models, "-o", "out"), True),
    ]


def snapshot(folder: Path) -> dict[str, Any]:
    """The content of every file of a finished job by its path, without times of day and durations."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "tfevents" not in path.name:  # TensorBoard adds a file for each process
            name = path.relative_to(folder).as_posix()
            found[name] = next(read for pattern, read in READERS if re.search(pattern, name))(path)
    return found


def _tensors(path: Path) -> Any:
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key).numpy().tobytes() for key in file.keys()}  # noqa: SIM118
        return tensors, _timeless(file.metadata())


def _hdf5(path: Path) -> Any:
    import h5py

    with h5py.File(path, "r") as file:
        return {
            name: ({key: array[()].tobytes() for key, array in group.items()}, group.attrs["done"])
            for name, group in file.items()
        }


def _checkpoint(path: Path) -> Any:
    return _timeless(read_checkpoint(path))


def _json(path: Path) -> Any:
    return _timeless(json.loads(path.read_text()))


def _lines(path: Path) -> Any:
    return [_timeless(json.loads(line)) for line in path.read_text().splitlines()]


def _text(path: Path) -> str:
    """Text without durations and without the hash and the size of a file that holds a duration."""
    text = path.read_text().split("Seconds a pair:")[0]
    return re.sub(r"(?m)^.*(\bTime: |time = |sha256 = |SHA-256|bytes = |- File: ).*\n", "", text)


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    return [_timeless(item) for item in value] if isinstance(value, (list, tuple)) else value


READERS: list[tuple[str, Callable[[Path], Any]]] = [
    (r"\.safetensors$", _tensors),
    (r"\.pt$", _checkpoint),
    (r"\.h5$", _hdf5),
    (r"\.jsonl$", _lines),
    (r"\.json$", _json),
    (r"\.(md|toml)$", _text),
    ("", Path.read_bytes),
]
