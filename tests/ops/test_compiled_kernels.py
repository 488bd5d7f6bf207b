"""Kernels are compiled for a GPU where there is none; where there is one, their own tests compile them."""

import pytest
import torch

from tests.ops.test_local_triton import run_checks

pytest.importorskip("triton", reason="Triton is not installed")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels' own tests compile them")
def test_for_a_gpu_that_is_not_there(tmp_path):
    run_checks("tests/ops/compile_checks.py", TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))
