"""The help of every command is quick and complete, and has an example with existing options."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from .test_cli import runner

COMMANDS = [
    "match",
    "video",
    "reconstruct",
    "panorama",
    "demo",
    "app",
    "models",
    "convert",
    "export",
    "train",
    "eval",
    "study",
    "inspect",
    "bench",
    "data",
    "data preview",
    "doctor",
]


@pytest.fixture
def run(monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", "80")
    return runner(monkeypatch, capfd)


def help_of(run, command):
    code, out, err = run(*command.split(), "--help")
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize(
    "arguments", [["--help"], ["match", "--help"], ["eval", "--help"], ["match", "--max-size", "x"]]
)
def test_help_and_usage_errors_do_not_import_torch(arguments):
    code = f"""
import sys
import gocor.cli
sys.argv = ["gocor", *{arguments!r}]
try:
    gocor.cli.main()
finally:
    heavy = {{"torch", "numpy", "cv2", "matplotlib"}} & sys.modules.keys()
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == (2 if "x" in arguments else 0), done.stderr
    assert "AssertionError" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--version"], 0), (["--help"], 0), (["match"], 2), (["nosuch"], 2), (["train", "--nosuch"], 2)],
)
def test_help_version_and_usage_errors_take_no_time(arguments, code):
    """Half a second of processor time is plenty without torch, which alone takes longer to import."""
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gocor", *arguments], capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == code, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert not imported & {"torch", "numpy", "cv2", "matplotlib"}
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run, command):
    """What it does, what it writes or prints, and an example in one line whose options exist."""
    text = help_of(run, command)
    (example,) = [line.strip() for line in text.splitlines() if line.strip().startswith("Example: ")]
    words = shlex.split(example.removeprefix("Example: "))
    assert words[0] == "gocor"
    assert words[1 : 1 + len(command.split())] == command.split()
    if command != "data":
        assert "Writes" in text or "Prints" in text
        for option in (word for word in words if word.startswith("-")):
            assert option in text


def test_the_module_has_the_name_of_the_command():
    """So that its completion is that of the command."""
    done = subprocess.run([sys.executable, "-m", "gocor", "data", "--help"], capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "Usage: gocor data [OPTIONS] COMMAND [ARGS]..."


def test_the_overview_names_every_command_in_full(run):
    text = help_of(run, "")
    for command in COMMANDS:
        assert f"\n  {command.split()[0]} " in text
    assert "..." not in text.split("Commands:")[1]


def test_names_in_the_help_are_all_that_there_are(run):
    from gocor.bench.sections import SECTIONS
    from gocor.data.synthetic import PRESETS
    from gocor.evaluation.baselines import BASELINES
    from gocor.evaluation.benchmarks import NAMES
    from gocor.matching.files import FLOW_FILES

    def missing(names, command):
        text = re.sub(r"-\n\s+", "-", help_of(run, command))  # names are wrapped at hyphens
        return [name for name in names if name not in text]

    assert missing([name for name in NAMES if not name.startswith("eth3d-")], "eval") == []
    assert missing(BASELINES, "eval") == []
    assert missing(PRESETS, "train") == missing(PRESETS, "data preview") == []
    assert missing(SECTIONS, "bench") == []
    assert missing(FLOW_FILES, "match") == []


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("gocor ma", ["match"]),
        ("gocor match --al", ["--align"]),
        ("gocor data p", ["preview"]),
        ("gocor match --model basenet", ["basenet", "basenet-gocor"]),
        ("gocor export glu", ["glunet", "glunet-gocor"]),
        ("gocor eval dev --model vgg", []),
    ],
)
def test_a_shell_completes_commands_options_and_names(typed, expected):
    """As the script of `gocor --show-completion` asks for them, and without torch."""
    asked = {"_GOCOR_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    code = """
import sys
import gocor.cli
sys.argv = ["gocor"]
try:
    gocor.cli.main()
finally:
    assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True)
    assert (sorted(done.stdout.split()), done.stderr) == (expected, "")
