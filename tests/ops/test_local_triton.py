"""The Triton kernels: on a GPU where there is one, else in Triton's interpreter, on the same small shapes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")

if torch.cuda.is_available():
    from tests.ops.triton_checks import *  # noqa: F403
else:

    def test_in_the_interpreter():
        """In a process of its own: the interpreter has to be chosen before Triton is imported."""
        if not triton.__version__.startswith("3.6."):
            pytest.skip(f"the interpreter of Triton {triton.__version__} is not known to work")
        root = Path(__file__).parents[2]
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/ops/triton_checks.py"]
        done = subprocess.run(
            command, cwd=root, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert " passed" in done.stdout
