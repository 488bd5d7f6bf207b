"""The Triton kernels: on a GPU where there is one, else in Triton's interpreter, on the same small shapes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")


def run_in_the_interpreter(checks: str) -> None:
    """In a process of its own: the interpreter has to be chosen before Triton is imported."""
    if not triton.__version__.startswith("3.6."):
        pytest.skip(f"the interpreter of Triton {triton.__version__} is not known to work")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", checks],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TRITON_INTERPRET": "1"},
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
