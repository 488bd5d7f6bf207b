"""Options: defaults by model, TOML, command line, and what is refused."""

import pytest

from gocor.training import make_config
from gocor.training.config import parse_assignment


def test_defaults_depend_on_the_model():
    basenet = make_config({"data": ["photos"]})
    assert (basenet.model, basenet.output, basenet.size) == ("basenet-gocor", "runs/basenet-gocor", (256, 256))
    semantic = make_config({"data": ["photos"], "model": "semantic-glunet-gocor"})
    assert (semantic.size, semantic.batch) == (make_config({"data": ["p"], "model": "glunet"}).size, 16)
    assert make_config({"data": ["photos"], "model": "pwcnet", "batch": 3}).batch == 3


def test_the_command_line_wins_over_the_file_and_the_file_over_defaults(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('data = ["a", "b"]\nlr = 1\nsteps = 7\nsize = [64, 128]\ngraph = false\n')
    config = make_config({"steps": 9}, file=file)
    assert (config.data, config.lr, config.steps, config.size, config.graph) == (("a", "b"), 1.0, 9, (64, 128), False)
    assert config.batch == 32


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
