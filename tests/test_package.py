"""Promises of the package as a whole."""

import doctest
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

import gocor
from gocor.modules import global_gocor, local_gocor

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_there():
    for name in gocor.__all__:
        assert hasattr(gocor, name)


def test_import_is_light_and_has_no_side_effects():
    """Nothing heavy is imported beside torch, no seed is consumed, no thread count or precision flag is touched."""
    code = """
import sys, torch
before = torch.random.get_rng_state().clone(), torch.get_num_threads(), torch.get_float32_matmul_precision()
import gocor
after = torch.random.get_rng_state(), torch.get_num_threads(), torch.get_float32_matmul_precision()
assert before[0].equal(after[0]) and before[1:] == after[1:]
heavy = {"matplotlib", "cv2", "typer", "rich", "PIL", "numba"} & sys.modules.keys()
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize("module", [global_gocor, local_gocor])
def test_docstring_examples_run(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


def test_torch_is_pinned_for_installs_but_not_for_users():
    assert (ROOT / "constraints.txt").read_text().split() == ["torch==2.13.0"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "torch>=2.10,<3" in project["dependencies"]


def test_every_dependency_has_a_lower_and_an_upper_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in chain(project["dependencies"], *project["optional-dependencies"].values()):
        assert requirement.startswith("gocor[") or (">=" in requirement and ",<" in requirement), requirement
