"""The kernel of local GOCor without gradients: on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch

from tests.ops.test_local_triton import run_in_the_interpreter

pytest.importorskip("triton", reason="Triton is not installed")

if torch.cuda.is_available():
    from tests.ops.tile_triton_checks import *  # noqa: F403
else:

    def test_in_the_interpreter():
        run_in_the_interpreter("tests/ops/tile_triton_checks.py")
