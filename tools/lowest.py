"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

python -m tools.lowest > lowest.txt

torch is left to constraints.txt.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTED = ("pytest", "hypothesis")  # of the extra `dev`


def lowest(requirements: list[str]) -> list[str]:
    """`name>=1.2,<3` → `name==1.2`; torch is left out."""
    found = []
    for requirement in requirements:
        match = re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)(?:,<[\w.]+)?", requirement)
        if match is None:
            raise SystemExit(f"a requirement must have a lower bound, as in name>=1.2,<3, got {requirement!r}")
        if match[1] != "torch":
            found.append(f"{match[1]}=={match[2]}")
    return found


def constraints() -> list[str]:
    """The constraints of the base install and of the tests that run with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tests = [line for line in project["optional-dependencies"]["dev"] if line.split(">=")[0] in TESTED]
    return lowest(project["dependencies"]) + lowest(tests)


if __name__ == "__main__":
    print("\n".join(constraints()))
