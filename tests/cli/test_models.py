"""`gocor models` and `gocor convert`."""

import json

import pytest
import torch

from gocor import list_models, load_model

from ..models.test_parity import published_state
from .test_cli import runner


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


def test_models(run):
    code, out, err = run("models")
    assert (code, err) == (0, "")
    for name in list_models():
        assert name in out
    assert "13,594,025" in out
    (default,) = (line.split() for line in out.splitlines() if line.startswith(" glunet-gocor "))
    assert default[1:6] == ["13,594,025", "shipped", "Apache-2.0", "63.0", "%"]
    assert "tiny" not in out


def test_models_json(run):
    code, out, err = run("models", "--json")
    assert (code, err) == (0, "")
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == list_models()
    assert rows["glunet-gocor"]["parameters"] == 13_594_025
    assert rows["glunet-gocor"]["weights"]["licence"].startswith("Apache-2.0")
    assert rows["pwcnet"]["weights"] is None


def test_convert(run, tmp_path):
    source, target = tmp_path / "published.pth", tmp_path / "ours.safetensors"
    state = published_state("pwcnet")
    torch.save({"state_dict": state}, source)
    printed = f"{source} holds weights of pwcnet\nwrote {target}\n"
    assert run("convert", source, target) == (0, printed, "")
    assert {path.name for path in tmp_path.iterdir()} == {source.name, target.name}
    network = load_model("pwcnet", target)
    assert network.published
    assert torch.equal(network.state_dict()["pyramid.levels.0.0.0.weight"], state["conv1a.0.weight"])

    refused = f"gocor: {target} exists already: --overwrite replaces it\n"
    assert run("convert", source, target) == (1, "", refused)
    assert run("convert", source, target, "--overwrite", "--model", "pwcnet")[0] == 0
    code, _, err = run("convert", source, tmp_path / "other.safetensors", "--model", "glunet")
    assert code == 1
    assert "does not fit glunet" in err
    assert {path.name for path in tmp_path.iterdir()} == {source.name, target.name}


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("gone.pth", "out.safetensors", "no such checkpoint: gone.pth"),
        ("text.pth", "out.safetensors", "text.pth is damaged or not a checkpoint"),
        ("text.pth", "out.pth", "out.pth: the name of the file to write must end in .safetensors"),
        ("text.pth", "gone/out.safetensors", "gone does not exist: create the folder first"),
    ],
)
def test_convert_errors(run, tmp_path, monkeypatch, source, target, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.pth").write_text("not a checkpoint")
    code, out, err = run("convert", source, target)
    assert (code, out) == (1, "")
    assert err.startswith(f"gocor: {message}")
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"text.pth"}
