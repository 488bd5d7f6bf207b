"""`gocor doctor`: what is installed, which code runs, and whether it works."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option, echo

from .options import Device, Json

if TYPE_CHECKING:
    from ..doctor.checks import Check

Checks = Annotated[bool, Option("--checks/--no-checks", help="Also run the self-test, which takes some seconds.")]


def doctor(*, device: Device = "auto", checks: Checks = True, json: Json = False) -> None:
    """Print what is installed and which code runs, and test it.

    Prints versions, extras, devices, and the code that runs for each layer. The self-test checks three things: the
    weights of the package have the right SHA-256, the fast code of every layer agrees with the plain code, and the
    match of a bundled image pair is correct. The exit code is 1 if a check fails. Include the output when you report a
    problem.

    Example: gocor doctor
    """
    from ..doctor.checks import run_checks
    from ..doctor.facts import collect
    from ..models.weights import choose_device

    where = choose_device(device)
    facts = collect(where)
    if not json:
        _print_facts(facts)
        if checks:
            echo("checks")
    done: list[Check] = []
    for check in run_checks(where) if checks else ():
        done.append(check)
        if not json:
            echo(f"  {'ok  ' if check.passed else 'FAIL'}  {check.name}: {check.detail}")
    failed = [check.name for check in done if not check.passed]
    if json:
        _print_json(facts, done)
    elif checks:
        echo(f"\n{len(failed)} of {len(done)} checks failed" if failed else f"\nall {len(done)} checks passed")
    if failed:
        raise Exit(1)


def _print_facts(facts: dict[str, Any]) -> None:
    echo("versions")
    for name, version in facts["versions"].items():
        echo(f"  {name}: {version or 'not installed' if name != 'cuda' else version or 'torch was built without it'}")
    echo("extras")
    for name, missing in facts["extras"].items():
        hint = f"not installed (pip install 'gocor[{name}]' adds {', '.join(missing)})"
        echo(f"  {name}: {hint if missing else 'installed'}")
    if not facts["extras"]:
        echo("  unknown: gocor runs from a folder and was not installed")
    echo("devices")
    for about in facts["devices"]:
        details = {key: value for key, value in about.items() if key != "device" and value is not None}
        echo(f"  {about['device']}: {', '.join(f'{key} {value}' for key, value in details.items())}")
    echo(f"code that runs on {facts['device']}")
    for what, form in facts["forms"].items():
        echo(f"  {what}: {form}")
    if facts["environment"]:
        echo("environment")
        for name, value in facts["environment"].items():
            echo(f"  {name}={value}")


def _print_json(facts: dict[str, Any], done: "list[Check]") -> None:
    import json
    from dataclasses import asdict

    passed = all(check.passed for check in done)
    echo(json.dumps({**facts, "checks": [asdict(check) for check in done], "passed": passed}, indent=2))
