"""`gocor eval` and `gocor inspect`: what they write and print, and how they fail."""

import json

import pytest

from gocor.cli.inspect import _print as print_layers
from gocor.evaluation.inspect import inspect_network
from gocor.models import create_model, save_model
from gocor.utils.locks import locked_folder

from ..data.datasets.samples import REAL, needs_real, write_sample
from .test_cli import runner


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


@pytest.fixture
def pairs(tmp_path):
    return write_sample("manifest", tmp_path / "data")


def test_models_side_by_side(run, pairs, tmp_path):
    out = tmp_path / "new" / "results"
    command = ["eval", "manifest", "--root", pairs, "--model", "identity", "--model", "dis", "-o", out]
    code, printed, err = run(*command)
    assert (code, err) == (0, "")
    assert "AEPE / PCK-1 / PCK-5" in printed
    assert "identity" in printed
    names = {path.name for path in out.iterdir()}
    assert names == {"pairs", "results.json", "results.md", "pck.png", "aepe.png"}
    for name in names - {"pairs"}:
        assert f"wrote {out / name}" in printed
    content = json.loads((out / "results.json").read_text())
    assert content["matchers"]["identity"]["manifest"]["pairs"] == 3
    assert content["command"].startswith("gocor eval manifest --root")
    assert content["matchers"]["dis"]["manifest"]["metrics"]["aepe"] < 5.8


def test_summary_as_json(run, pairs, tmp_path):
    code, printed, err = run("eval", "manifest", "--root", pairs, "--model", "dis", "-o", tmp_path / "out", "--json")
    assert (code, err) == (0, "")
    summary = json.loads(printed)
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    found = summary["matchers"]["dis"]["manifest"]
    assert found["metrics"] == written["matchers"]["dis"]["manifest"]["metrics"]
    assert found["pairs"] == 3
    assert str(tmp_path / "out" / "results.json") in summary["files"]


def test_results_do_not_depend_on_when_they_were_made(run, pairs, tmp_path):
    command = ["eval", "manifest", "--root", pairs, "--model", "sift-homography", "-o"]
    first, again = run(*command, tmp_path / "a"), run(*command, tmp_path / "a")
    assert first == again
    before = json.loads((tmp_path / "a" / "results.json").read_text())
    assert run(*command, tmp_path / "a", "--overwrite")[0] == 0
    after = json.loads((tmp_path / "a" / "results.json").read_text())

    def timeless(value):
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key not in ("seconds", "command")}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    assert timeless(before) == timeless(after)


def test_a_network_with_a_checkpoint_and_sheets(run, pairs, tmp_path):
    save_model(create_model("basenet-gocor-tiny"), tmp_path / "mine.safetensors")
    model = f"basenet-gocor-tiny:{tmp_path / 'mine.safetensors'}"
    code, printed, err = run(
        *("eval", "manifest", "--root", pairs, "--model", "identity", "--model", model, "-o", tmp_path / "out"),
        *("--limit", "1", "--sheets", "1", "--pixel", "20,20", "--device", "cpu", "--iters-local", "1"),
    )
    assert (code, err) == (0, "")
    assert "basenet-gocor-tiny (mine)" in printed
    assert (tmp_path / "out" / "sheets" / "manifest-000.png").read_bytes().startswith(b"\x89PNG")


def test_an_interrupted_command_is_quiet_and_can_be_resumed(run, pairs, tmp_path, monkeypatch):
    from gocor.evaluation import baselines

    calls, original = [], baselines.BASELINES["dis"]

    def pressed(reference, query):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(reference, query)

    monkeypatch.setitem(baselines.BASELINES, "dis", pressed)
    command = ["eval", "manifest", "--root", pairs, "--model", "dis", "-o", tmp_path / "out"]
    assert run(*command) == (130, "", "")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"pairs"}
    assert run(*command)[0] == 0
    assert len(calls) == 2 + 2  # the first of three pairs was done


def test_geometry_warns_without_ground_truth(run, tmp_path):
    root = write_sample("middlebury", tmp_path / "data")
    code, _, err = run("eval", "middlebury", "--root", root, "--model", "identity", "--geometry", "-o", tmp_path)
    assert code == 0
    assert "--geometry has nothing to estimate" in err


def test_calibration(run, tmp_path):
    root, network = write_sample("sintel", tmp_path / "data"), tmp_path / "mine.safetensors"
    save_model(create_model("recurrent-gocor-tiny"), network)
    model = f"recurrent-gocor-tiny:{network}"
    command = ["eval", "sintel-final", "--root", root, "--model", model, "--calibration", "-o", tmp_path / "out"]
    code, printed, err = run(*command)
    assert (code, err) == (0, "")
    assert "recurrent-gocor-tiny (mine): confidence (learnt)" in printed
    assert "recurrent-gocor-tiny (mine): visibility (learnt)" in printed
    assert (tmp_path / "out" / "calibration.png").read_bytes().startswith(b"\x89PNG")
    code, printed, err = run(*command, "--confidence", "consistency", "--json")
    assert (code, err) == (0, "")
    summary = json.loads(printed)
    found = summary["matchers"]["recurrent-gocor-tiny (mine)"]["sintel-final"]["calibration"]
    assert set(found) == {"confidence"}
    assert found["confidence"]["source"] == "consistency"
    assert summary["calibration"]["recurrent-gocor-tiny (mine)"] == found


def test_calibration_warns_without_a_confidence(run, pairs, tmp_path):
    code, _, err = run("eval", "manifest", "--root", pairs, "--model", "identity", "--calibration", "-o", tmp_path)
    assert code == 0
    assert "--calibration has nothing to measure" in err


@needs_real
def test_the_dev_set_is_one_command(run, tmp_path):
    code, printed, err = run("eval", "dev", "--root", REAL, "--model", "identity", "--limit", "1", "-o", tmp_path)
    assert (code, err) == (0, "")
    (header,) = [line for line in printed.splitlines() if line.strip().startswith("AEPE / PCK-1 / PCK-5")]
    sets = "hpatches_v hpatches_i middlebury sintel_clean sintel_final kitti2012 kitti2015 flyingchairs stereo"
    assert header.split()[5:] == sets.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "kitty", "--model", "dis"], "no benchmark is named 'kitty'"),
        (["eval", "manifest", "--model", "raft"], "no matcher is named 'raft'"),
        (["eval", "manifest"], "give at least one --model"),
        (
            ["eval", "manifest", "--model", "dis", "--sheets", "1"],
            "--sheets compares models: give --model twice or more",
        ),
        (["eval", "manifest", "--model", "dis", "--pixel", "3,4"], "--pixel is for the sheets"),
        (["eval", "manifest", "--model", "dis", "--confidence", "learnt"], "--confidence is for the calibration"),
        (
            ["eval", "manifest", "--model", "basenet-gocor-tiny", "--calibration", "--confidence", "learnt"],
            "basenet-gocor-tiny does not learn a confidence: choose 'consistency'",
        ),
        (
            ["eval", "manifest", "--model", "dis", "--model", "identity", "--sheets", "1", "--pixel", "3"],
            "--pixel must be X,Y, got '3'",
        ),
        (
            ["eval", "manifest", "--model", "dis", "--model", "identity", "--sheets", "1", "--pixel", "nan,3"],
            "--pixel must be X,Y, got 'nan,3'",
        ),
        (
            ["eval", "manifest", "--model", "dis", "--model", "identity", "--sheets", "1", "--pixel", "3,-1"],
            "--pixel must be X,Y, got '3,-1'",
        ),
        (["eval", "manifest", "--model", "dis", "--iters-local", "3"], "iters_local is an option of networks"),
        (["eval", "manifest", "--model", "dis", "--rules", "paper"], "manifest is no data set of the paper"),
        (["eval", "tss", "--model", "dis"], "is not a folder: TSS is expected there; obtain it from https://"),
        (["eval", "manifest", "--model", "glunet:no.pth"], "no such checkpoint: no.pth"),
    ],
)
def test_errors_are_one_line(run, pairs, tmp_path, arguments, message):
    code, out, err = run(*arguments, "--root", pairs, "-o", tmp_path / "out")
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_wrong_usage(run, tmp_path):
    assert run("eval", "dev", "--model", "dis", "-o", tmp_path)[0] == 2  # no root
    assert run("eval", "dev", "--root", tmp_path, "--rules", "mine", "-o", tmp_path)[0] == 2
    (tmp_path / "file").write_text("")
    code, _, err = run("eval", "dev", "--root", tmp_path, "--model", "dis", "-o", tmp_path / "file")
    assert (code, err) == (1, f"gocor: {tmp_path / 'file'}: is not a folder\n")


def test_inspect(run, tmp_path):
    network = create_model("basenet-gocor-tiny")
    network.local_matching.correlation.objective.weight.data[0] = 2.5
    save_model(network, tmp_path / "mine.safetensors")
    code, out, err = run(
        "inspect", "basenet-gocor-tiny", "--weights", tmp_path / "mine.safetensors", "-o", tmp_path / "out"
    )
    assert (code, err) == (0, "")
    assert "2.5" in out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"global_matching.correlation.png", "local_matching.correlation.png", "layers.json"}
    layers = json.loads((tmp_path / "out" / "layers.json").read_text())["layers"]
    assert layers[1]["weight"][0] == 2.5


def test_inspecting_a_network_without_gocor(run, tmp_path):
    code, _, err = run("inspect", "glunet-tiny", "--weights", "none", "-o", tmp_path / "out")
    assert code == 1
    assert err.splitlines()[-1] == "gocor: glunet-tiny has no GOCor module to inspect"
    assert not (tmp_path / "out").exists()


def test_inspect_cuts_no_number_off(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    layers = inspect_network(create_model("glunet-gocor-tiny"))
    for layer in layers:
        layer.scalars.update(regularization=-1.2345e-05, step_factor=-1.2345e-05)
        for name in ("target", "weight", "mask"):
            layer.curves[name] = 0 * layer.curves[name] - 1.2345e-05
    print_layers(layers)
    table = capsys.readouterr().out
    assert "…" not in table
    assert table.count("-1.234e-05") + table.count("-1.235e-05") == 6 * len(layers)


def test_a_second_command_into_the_same_folder_is_refused(run, pairs, tmp_path):
    command = ["eval", "manifest", "--root", pairs, "--model", "identity", "-o", tmp_path / "out"]
    with locked_folder(tmp_path / "out"):
        code, printed, err = run(*command)
        assert (code, printed) == (1, "")
        assert err.startswith(f"gocor: {tmp_path / 'out'} is in use by process ")
        assert err.count("\n") == 1
    assert run(*command)[0] == 0
