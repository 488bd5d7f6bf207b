"""The table of weights that ship: it agrees with the files, the cards agree with it, and loading goes by it."""

import hashlib
import json
import math
import shutil
import subprocess
import sys
import warnings

import pytest
import torch
from safetensors import safe_open

import gocor
from gocor.models import create_model, list_models, save_model, zoo
from gocor.models.cards import model_card, pages
from gocor.models.registry import sketch

NAMES = sorted(zoo.shipped())
NETWORKS = [name for name in NAMES if name != zoo.FEATURES]
TINY = "pwcnet-gocor-tiny"
RUN = {"command": "gocor train --data photos", "steps": 7, "seed": 3, "time": "1 minute on CPU"}


def metadata_of(name):
    with safe_open(zoo.SHIPPED / f"{name}.safetensors", "pt") as file:
        return file.metadata(), sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of weights in place of the package's, with the VGG-16 features in it."""
    for suffix in ("safetensors", "toml"):
        shutil.copy(zoo.SHIPPED / f"{zoo.FEATURES}.{suffix}", tmp_path)
    monkeypatch.setattr(zoo, "SHIPPED", tmp_path)
    for cached in (zoo.shipped, zoo.shipped_file):
        cached.cache_clear()
    yield tmp_path
    for cached in (zoo.shipped, zoo.shipped_file):
        cached.cache_clear()


def test_every_file_has_a_row_and_every_row_a_file():
    assert {path.stem for path in zoo.SHIPPED.glob("*.safetensors")} == set(NAMES)
    assert {row.model for row in zoo.shipped().values()} == {*NETWORKS, ""}
    assert list_models(shipped=True) == [name for name in list_models() if name in NETWORKS]


@pytest.mark.parametrize("name", NAMES)
def test_rows_agree_with_the_files(name):
    row, content = zoo.shipped()[name], (zoo.SHIPPED / f"{name}.safetensors").read_bytes()
    metadata, stored = metadata_of(name)
    assert (row.sha256, row.bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    if name == zoo.FEATURES:
        assert row.parameters == stored
        return
    assert row.parameters == sum(parameter.numel() for parameter in sketch(name).parameters())
    for fact in ("model", "licence", "data", "made_with"):
        assert getattr(row, fact) == metadata[fact]
    assert dict(row.metrics) == json.loads(metadata["metrics"])
    last = row.runs[-1]
    assert (last.steps, last.seed, last.time) == (int(metadata["steps"]), int(metadata["seed"]), metadata["time"])
    # The last run of glunet-gocor had other folders than those under which its card tells of the six runs.
    paths = {"-o large": "-o glunet-gocor", "fine-2/final.safetensors": "init.safetensors"} if len(row.runs) > 2 else {}
    command = last.command
    for ours, theirs in paths.items():
        command = command.replace(ours, theirs)
    assert command == metadata["command"]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_scores_on_the_dev_samples(name):
    row = zoo.shipped()[name]
    assert 0 < row.headline < 100
    for evaluation in row.evaluations:
        assert len(evaluation.scores) == 9
        assert all({"aepe", "pck1", "pck5"} <= scores.keys() for scores in evaluation.scores.values())


@pytest.mark.parametrize("page", ["README.md", *(f"{name}.md" for name in NAMES)])
def test_cards_are_those_that_the_table_gives(page):
    """`python -m gocor.models.cards` writes them."""
    assert (zoo.SHIPPED / page).read_text(encoding="utf-8") == pages()[page]


def test_the_table_of_the_documentation():
    command = [sys.executable, "-m", "gocor.models.cards"]
    done = subprocess.run([*command, "--table"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    header, _, *rows = done.stdout.splitlines()
    assert len(rows) == len(NAMES)
    assert all(row.count(" | ") == header.count(" | ") for row in rows)
    assert "| 13,594,025 | 11.4 | 63.0 | Apache-2.0;" in done.stdout
    refused = subprocess.run([*command, "--tables"], capture_output=True, text=True)
    assert (refused.returncode, refused.stderr) == (1, "usage: python -m gocor.models.cards [--table]\n")


def test_shipping_is_a_copy_and_a_row(folder):
    """A file that `save_model` writes and the row that it returns are all that the default weights need."""
    network = create_model(TINY)
    row = save_model(network, folder / f"{TINY}.safetensors", **RUN, metrics={"epe": 1.5, "set.aepe": 2}, data="photos")
    (folder / f"{TINY}.toml").write_text(row.to_toml())
    assert zoo.shipped()[TINY] == row
    assert (row.model, row.runs, row.metrics["set.aepe"]) == (TINY, (zoo.TrainingRun(**RUN),), 2)
    assert row.parameters == sum(parameter.numel() for parameter in network.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = gocor.load_model(TINY, device="cpu")
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in network.state_dict().items())
    card = model_card(row, file=f"{TINY}.safetensors", options={"size": [64, 96]})
    for text in (f"# {TINY}\n", "- Steps: 7\n- Seed: 3\n- Time: 1 minute", "at 64×96", "| set.aepe | 2 |", row.sha256):
        assert text in card


@pytest.mark.parametrize("damaged", [TINY, zoo.FEATURES])
def test_damaged_and_missing_files(folder, damaged):
    model = "basenet" if damaged == zoo.FEATURES else TINY
    row = save_model(create_model(TINY), folder / f"{TINY}.safetensors")
    (folder / f"{TINY}.toml").write_text(row.to_toml())
    path = folder / f"{damaged}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path} is damaged: its SHA-256 should be .*…, is .*…; reinstall gocor"):
        gocor.load_model(model, device="cpu")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"{path} is missing, although it is part of gocor: reinstall gocor"):
        gocor.load_model(model, device="cpu")


def test_a_file_is_hashed_once_in_a_process(folder, monkeypatch):
    calls, original = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *a: calls.append(a) or original(*a))
    for _ in range(3):
        zoo.shipped_file(zoo.FEATURES)
    assert len(calls) == 1
