"""Promises of the package as a whole."""

import doctest
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml

import gocor
from gocor.models.zoo import shipped
from gocor.modules import global_gocor, local_gocor

ROOT = Path(__file__).parents[1]


def run_python(code):
    """Run code in a fresh interpreter; it must print nothing."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""


def test_every_public_name_is_there():
    for name in gocor.__all__:
        assert hasattr(gocor, name)
        assert name in dir(gocor)
    for name in ("data", "matching", "models", "modules", "ops", "viz"):
        assert getattr(gocor, name).__name__ == f"gocor.{name}"
    with pytest.raises(AttributeError, match="module 'gocor' has no attribute 'nothing'"):
        gocor.nothing  # noqa: B018


def test_importing_the_package_does_not_import_torch():
    run_python("import sys, gocor, gocor.cli; heavy = {'torch', 'numpy'} & sys.modules.keys(); assert not heavy, heavy")


def test_import_is_light_and_has_no_side_effects():
    """Nothing heavy is imported beside torch, no seed is consumed, no thread count or precision flag is touched."""
    code = """
import sys, torch
before = torch.random.get_rng_state().clone(), torch.get_num_threads(), torch.get_float32_matmul_precision()
from gocor import *
after = torch.random.get_rng_state(), torch.get_num_threads(), torch.get_float32_matmul_precision()
assert before[0].equal(after[0]) and before[1:] == after[1:]
heavy = {"matplotlib", "cv2", "typer", "rich", "PIL", "numba"} & sys.modules.keys()
assert not heavy, heavy
"""
    run_python(code)


def test_inference_does_not_import_the_compiler():
    """It takes 0.8 s. Custom operators import it when they are called, unless they need no dispatch."""
    code = """
import sys, torch
from gocor import GlobalGOCor, LocalGOCor
from gocor.ops import lookup, pool_pyramid
x = torch.randn(1, 8, 6, 6)
with torch.inference_mode():
    GlobalGOCor(channels=8)(x, x), LocalGOCor()(x, x)
    assert lookup(x, pool_pyramid(x, 2), torch.zeros(1, 2, 6, 6)).shape == (1, 162, 6, 6)
import gocor.matching
assert "torch._dynamo" not in sys.modules
x.requires_grad_()
lookup(x, [x], torch.zeros(1, 2, 6, 6)).sum().backward()
assert x.grad is not None
"""
    run_python(code)


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


def test_the_readme_on_pypi_has_no_relative_link():
    """The build replaces them, because PyPI has no other files of the repository."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    local = [link for link in re.findall(r"\]\(([^)#]+)", readme) if not link.startswith("https:")]
    assert all((ROOT / link).exists() for link in local)
    text = readme
    for rule in hook["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"].replace("$HFPR_VERSION", "1.2.3"), text)
    links = re.findall(r"\]\(([^)]+)", text)
    assert all(link.startswith("https://") for link in links)
    assert "![Two views of a courtyard" in text
    assert "](https://raw.githubusercontent.com/gocor/gocor/v1.2.3/docs/images/match.jpg)" in text
    assert [link for link in local if f"/v1.2.3/{link}" not in text] == []


def test_the_citation_has_the_version_and_date_of_the_changelog():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    version, date = re.search(
        r"^## \[([\d.]+)\] – (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    ).groups()
    assert citation["version"] == version == gocor.__version__
    assert str(citation["date-released"]) == date


def test_the_package_holds_the_licence_of_everything_in_it():
    """A BSD licence asks for its text beside what is under it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [(ROOT / file).read_text(encoding="utf-8") for file in project["license-files"]]
    assert [text.split()[:3] for text in texts] == [["Apache", "License", "Version"], ["BSD", "3-Clause", "License"]]
    assert project["license"] == "Apache-2.0 AND BSD-3-Clause"
    known = {licence.split(",")[0].split(";")[0] for licence in (row.licence for row in shipped().values())}
    assert known == {"Apache-2.0", "BSD-3-Clause"}


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_install_the_cpu_build_of_torch(path):
    """On Linux the default index has builds for CUDA, which are gigabytes large."""
    workflow = yaml.safe_load(path.read_text())
    assert workflow["env"]["PIP_EXTRA_INDEX_URL"] == "https://download.pytorch.org/whl/cpu"
