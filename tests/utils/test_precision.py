"""Flags of precision and autotuning hold inside the block and are restored after it."""

import pytest
import torch

from gocor.utils.precision import cudnn_benchmark, fast_math


def flags():
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark


@pytest.mark.parametrize(("tf32", "precision"), [(True, "high"), (False, "highest")])
def test_flags_of_a_gpu(tf32, precision):
    before = flags()
    with fast_math(torch.device("cuda"), tf32=tf32):
        assert flags() == (precision, True)
        with cudnn_benchmark(False):
            assert flags() == (precision, False)
        assert flags() == (precision, True)
    assert flags() == before


def test_flags_are_restored_after_an_error():
    before = flags()
    with pytest.raises(ZeroDivisionError), fast_math(torch.device("cuda"), tf32=True):
        1 / 0  # noqa: B018
    assert flags() == before


def test_a_cpu_keeps_its_precision():
    before = torch.get_float32_matmul_precision()
    with fast_math(torch.device("cpu"), tf32=True):
        assert flags() == (before, False)
