"""Runs the checks of the Triton kernels: on a GPU where there is one, else in Triton's interpreter and its compiler.

The interpreter must be chosen before Triton is imported, so each file of checks runs in a process of its own.
"""

import os
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.long

if find_spec("triton") is None:
    if sys.platform == "linux" and platform.machine() == "x86_64":
        pytest.fail("Triton is not installed: run `make install`, the kernels must not go untested", pytrace=False)
    pytest.skip("Triton is not available for this platform", allow_module_level=True)

if torch.cuda.is_available():
    from tests.ops.kernels.checks_correlation import *  # noqa: F403
    from tests.ops.kernels.checks_global import *  # noqa: F403
    from tests.ops.kernels.checks_local import *  # noqa: F403
    from tests.ops.kernels.checks_tensor_cores import *  # noqa: F403
else:

    @pytest.mark.parametrize("checks", ["correlation", "local", "tensor_cores", "global"])
    def test_in_the_interpreter(checks):
        run_checks(checks, TRITON_INTERPRET="1")

    def test_every_kernel_compiles_for_a_gpu(tmp_path):
        run_checks("compile", TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))


def run_checks(checks: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"tests/ops/kernels/checks_{checks}.py"],
        cwd=Path(__file__).parents[3],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
