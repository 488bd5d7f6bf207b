"""Print a bill of materials of the installed package and all that it needs, as CycloneDX 1.5 JSON.

python -m tools.sbom > sbom.json
"""

import json
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any


def bill(root: str = "gocor") -> dict[str, Any]:
    """The bill of an installed distribution: its components with versions and licences, and who needs whom."""
    found: dict[str, Distribution] = {}
    needs: dict[str, list[str]] = {}
    waiting = [root]
    while waiting:
        name = normal(waiting.pop())
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # it is for other systems
            continue
        needs[name] = sorted({normal(line) for line in found[name].requires or [] if "extra ==" not in line})
        waiting += needs[name]
    components = {name: component(package) for name, package in sorted(found.items())}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": components[normal(root)] | {"type": "application"}},
        "components": [entry for name, entry in components.items() if name != normal(root)],
        "dependencies": [
            {
                "ref": components[name]["bom-ref"],
                "dependsOn": [components[other]["bom-ref"] for other in needs[name] if other in components],
            }
            for name in components
        ],
    }


def normal(requirement: str) -> str:
    """The normalised name of the distribution that a requirement begins with."""
    name = re.match(r"[\w.-]+", requirement)
    if name is None:
        raise ValueError(f"not a requirement: {requirement!r}")
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def component(package: Distribution) -> dict[str, Any]:
    """The entry of one distribution."""
    data = package.metadata
    name = normal(data["Name"])
    url = f"pkg:pypi/{name}@{package.version.replace('+', '%2B')}"
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": package.version,
        "purl": url,
    }
    classified = [c.rpartition(" :: ")[2] for c in data.get_all("Classifier") or [] if c.startswith("License ::")]
    if expression := data.get("License-Expression"):
        entry["licenses"] = [{"expression": expression}]
    elif names := classified or [text for text in [data.get("License")] if text and len(text) < 80]:
        entry["licenses"] = [{"license": {"name": text}} for text in names]
    return entry


if __name__ == "__main__":
    print(json.dumps(bill(), indent=1))
