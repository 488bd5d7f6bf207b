"""The Triton kernels: on a GPU where there is one, else in Triton's interpreter, on the same small shapes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")


def run_in_the_interpreter(checks: str) -> None:
    run_checks(checks, TRITON_INTERPRET="1")


def run_checks(checks: str, **environment: str) -> None:
    """In a process of its own: whether kernels are interpreted has to be said before Triton is imported."""
    if not triton.__version__.startswith("3.6."):
        pytest.skip(f"the checks reach into Triton 3.6 and are not known to work with {triton.__version__}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", checks],
        cwd=Path(__file__).parents[2],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


if torch.cuda.is_available():
    from tests.ops.triton_checks import *  # noqa: F403
else:

    def test_in_the_interpreter():
        run_in_the_interpreter("tests/ops/triton_checks.py")
