"""What the package loads and depends on."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

from tools.lowest import constraints, lowest
from tools.sbom import bill

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
UNSAFE = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}


def unsafe_loads(source):
    """Lines of a program that may run code of a file: pickle in any form, but `torch.load(…, weights_only=True)`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [node.lineno for name in names if name.split(".")[0] in UNSAFE]
        if not isinstance(node, ast.Call):
            continue
        name, options = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
        if name == "torch.load" and options.get("weights_only") != "True":
            found.append(node.lineno)
        if name in ("np.load", "numpy.load") and options.get("allow_pickle", "False") != "False":
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_scan_finds_what_may_run_code(source):
    assert unsafe_loads(source) == [1]


def test_no_code_of_a_file_is_run():
    assert len(SOURCES) > 100
    found = {path.relative_to(ROOT).as_posix(): unsafe_loads(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_every_dependency_has_a_lower_and_an_upper_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all(re.fullmatch(r"[\w-]+>=[\d.]+,<\d+", line) for line in project["dependencies"])
    assert len(constraints()) == len(project["dependencies"]) - 1 + 2  # without torch, with the tests' own
    with pytest.raises(SystemExit, match="must have a lower bound"):
        lowest(["numpy"])


def test_the_bill_of_materials_names_all_that_is_needed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    content = json.loads(json.dumps(bill()))
    assert (content["bomFormat"], content["metadata"]["component"]["name"]) == ("CycloneDX", "gocor")
    names = {component["name"] for component in content["components"]}
    assert {line.split(">=")[0] for line in project["dependencies"]} <= names
    assert all(component["version"] and component["purl"] for component in content["components"])
    references = {component["bom-ref"] for component in content["components"]}
    assert {ref for entry in content["dependencies"] for ref in entry["dependsOn"]} <= references
