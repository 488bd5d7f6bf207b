"""Options: defaults by model, TOML, command line, and what is refused."""

import pytest
import torch

from gocor.training import make_config
from gocor.training.config import parse_assignment, read_commands


def test_defaults_depend_on_the_model():
    basenet = make_config({"data": ["photos"]})
    assert (basenet.model, basenet.output, basenet.size) == ("basenet-gocor", "runs/basenet-gocor", (256, 256))
    semantic = make_config({"data": ["photos"], "model": "semantic-glunet-gocor"})
    assert (semantic.size, semantic.lr) == (make_config({"data": ["p"], "model": "glunet"}).size, 3e-4)
    assert make_config({"data": ["photos"], "model": "pwcnet", "batch": 3}).batch == 3


def test_the_command_line_wins_over_the_file_and_the_file_over_defaults(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('data = ["a", "b"]\nlr = 1\nsteps = 7\nsize = [64, 128]\ngraph = false\n')
    config = make_config({"steps": 9}, file=file)
    assert (config.data, config.lr, config.steps, config.size, config.graph) == (("a", "b"), 1.0, 9, (64, 128), False)
    assert config.lr == 1


def test_batches_are_small_by_default_on_a_cpu(monkeypatch):
    """A step of BaseNet-GOCor with 32 pairs took minutes."""
    monkeypatch.setattr("gocor.training.config.choose_device", lambda name: torch.device(name))
    assert make_config({"data": ["p"], "device": "cuda"}).batch == 32
    assert make_config({"data": ["p"], "device": "cpu"}).batch == 4
    assert make_config({"data": ["p"], "device": "cpu", "batch": 8}).batch == 8


def test_the_commands_of_a_run_are_kept_beside_its_options(tmp_path):
    config = make_config({"data": ["p"]})
    commands = ["gocor train --data 'my photos'", 'gocor train --resume -o "é\n"']
    config.save(tmp_path, commands)
    assert read_commands(tmp_path) == commands
    assert make_config({}, file=tmp_path / "config.toml") == config
    assert read_commands(tmp_path / "none") == []


def test_saved_options_are_read_back(tmp_path):
    config = make_config({"data": ['a "quoted" é\\path'], "size": 64, "milestones": [], "time_limit": 3, "graph": True})
    config.save(tmp_path)
    assert make_config({}, file=tmp_path / "config.toml") == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 1}, "no option 'learning_rate'"),
        ({"lr": "fast"}, "lr must be of type float, got 'fast'"),
        ({"lr": 0}, "lr must be greater than 0"),
        ({"steps": 2.5}, "steps must be of type int"),
        ({"steps": True}, "steps must be of type int"),
        ({"channels_last": 1}, "channels_last must be of type bool"),
        ({"schedule": "cosine"}, "schedule must be one of one-cycle, constant, multi-step, got 'cosine'"),
        ({"size": [64, 64, 64]}, "size must have 2 values"),
        ({"size": 8}, "size must be at least 16"),
        ({"betas": [0.9, 1.0]}, "betas must be at least 0 and below 1, got 1.0"),
        ({"model": "vgg"}, "no model is named 'vgg'"),
        ({"data": []}, "got neither"),
        ({"flow": ["sintel=x"]}, "got both"),
        ({"schedule_by": "time"}, "needs a time_limit"),
        ({"milestones": [0.5, 1.5]}, "milestones must be at least 0 and below 1, got 1.5"),
        ({"time_limit": -1}, "time_limit must be greater than 0"),
        ({"clip": float("inf")}, "clip must be finite, got inf"),
        ({"betas": 0.9}, "betas must have 2 values, got 0.9"),
        ({"robust_exponent": [1, 0]}, "robust_exponent must be greater than 0, got 0.0"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make_config({"data": ["photos"]} | options)


def test_errors_of_a_file_name_it(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("epochs = 3\n")
    with pytest.raises(ValueError, match=r"run.toml: there is no option 'epochs'"):
        make_config({}, file=file)
    file.write_text("steps = \n")
    with pytest.raises(ValueError, match=r"run.toml is not a TOML file"):
        make_config({}, file=file)


def test_assignments():
    assert parse_assignment("ema=0.5") == ("ema", 0.5)
    assert parse_assignment("size=[64, 96]") == ("size", [64, 96])
    assert parse_assignment("schedule=constant") == ("schedule", "constant")
    assert parse_assignment("graph = true") == ("graph", True)
    with pytest.raises(ValueError, match="KEY=VALUE"):
        parse_assignment("ema")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size = 1" + 5000 * "0", "run.toml is not a TOML file: a number has too many digits"),
        ("size = " + 10_000 * "[", "run.toml is not a TOML file: it is nested too deeply"),
        ("lr = 1" + 400 * "0", "lr must be at most"),
        ("steps = 1" + 400 * "0", "steps must be at most"),
        ('data = ["a\\u0000"]', "data must not hold the character NUL"),
        ('size = "' + 5000 * "a" + '"', "size must "),
    ],
)
def test_hostile_files_are_refused_in_a_short_line(tmp_path, text, message):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        make_config({}, file=tmp_path / "run.toml")
    assert len(str(error.value)) < 300 + len(str(tmp_path))
