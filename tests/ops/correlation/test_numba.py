"""The loops that Numba compiles, against the specification in float64."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gocor import ops
from gocor.ops import local_correlation, select
from gocor.ops.correlation import reference as local_reference
from tests.conftest import relative_error

numba = pytest.importorskip("numba", reason="Numba is not installed")
local_numba = pytest.importorskip("gocor.ops.correlation.numba", reason="Numba is switched off")

OPERATORS = ["correlate", "adjoint_reference", "adjoint_query"]
# (B, C, H, W, R): ragged widths, one pixel, maps smaller than the radius, whole vectors, more sums than a block holds
SHAPES = [
    (2, 5, 7, 9, 4),
    (1, 3, 1, 1, 4),
    (1, 1, 3, 2, 8),
    (2, 16, 9, 12, 0),
    (9, 4, 6, 8, 1),
    (1, 8, 5, 31, 2),
    (1, 10, 4, 16, 3),
    (2, 23, 18, 40, 8),
    (1, 2, 3, 5, 16),
]


def operands(name: str, batch: int, channels: int, height: int, width: int, radius: int) -> tuple[torch.Tensor, ...]:
    first = channels if name == "correlate" else (2 * radius + 1) ** 2
    return torch.randn(batch, first, height, width), torch.randn(batch, channels, height, width)


def call(name: str, first: torch.Tensor, features: torch.Tensor, radius: int) -> torch.Tensor:
    return getattr(local_numba, name)(first, features, radius, 0.3)


def expected(name: str, first: torch.Tensor, features: torch.Tensor, radius: int) -> torch.Tensor:
    return getattr(local_reference, name)(first.double(), features.double(), radius, 0.3)


@pytest.fixture(params=["of torch", "our own"])
def threads(request, monkeypatch):
    """Three threads for the smallest of maps."""
    if request.param == "our own":
        monkeypatch.setattr(local_numba, "_openmp", lambda: None)
    elif local_numba._openmp() is None:
        pytest.skip("torch is built without OpenMP, or with one that has no GOMP_parallel")
    monkeypatch.setattr(local_numba, "WORK", 1)
    torch.set_num_threads(3)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_loops_equal_slices(name, shape):
    first, features = operands(name, *shape)
    assert relative_error(call(name, first, features, shape[-1]), expected(name, first, features, shape[-1])) < 1e-6


@pytest.mark.parametrize("radius", [0, 2, 4])
def test_adjoints_are_adjoint(radius):
    reference, query = torch.randn(2, 2, 6, 7, 11)
    volume = torch.randn(2, (2 * radius + 1) ** 2, 7, 11)
    product = (call("correlate", reference, query, radius) * volume).double().sum()
    of_reference = (call("adjoint_reference", volume, query, radius) * reference).double().sum()
    of_query = (call("adjoint_query", volume, reference, radius) * query).double().sum()
    torch.testing.assert_close(torch.stack([of_reference, of_query]), product.expand(2), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", [0, 1])
def test_nan_and_infinity_spread_as_in_slices(name, bad, where):
    pair = operands(name, 1, 3, 9, 13, 2)
    for y, x in ((0, 0), (5, 6), (8, 12)):
        pair[where][0, 1, y, x] = bad
    torch.testing.assert_close(
        call(name, *pair, 2), getattr(local_reference, name)(*pair, 2, 0.3), equal_nan=True, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_every_element_is_written(name, monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **options: empty(*size, **options).fill_(float("nan")))
    assert call(name, *operands(name, 2, 5, 6, 10, 2), 2).isfinite().all()


@pytest.mark.parametrize("name", OPERATORS)
def test_number_of_threads_changes_nothing(name, threads):
    pair = operands(name, 2, 5, 7, 9, 2)
    threaded = call(name, *pair, 2)
    torch.set_num_threads(1)
    assert torch.equal(threaded, call(name, *pair, 2))


@pytest.mark.parametrize("name", OPERATORS)
def test_callers_at_once_do_not_meet(name, threads):
    pairs = [operands(name, 1, 8, 16, 16, 2) for _ in range(8)]
    alone = [call(name, *pair, 2) for pair in pairs]
    with ThreadPoolExecutor(4) as callers:
        for _ in range(5):
            together = list(callers.map(lambda pair: call(name, *pair, 2), pairs))
            assert all(map(torch.equal, alone, together))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_gets_threads_of_its_own():
    code = """
import os, torch
from gocor.ops.correlation import numba as local_numba
local_numba.WORK, local_numba._openmp = 1, lambda: None
torch.set_num_threads(2)
features = torch.ones(1, 2, 6, 8)
local_numba.correlate(features, features, 1, 1.0)
child = os.fork()
if child == 0:
    local_numba.correlate(features, features, 1, 1.0)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_sixteen_bits_and_any_layout(name, half):
    first, features = (t.to(half) for t in operands(name, 2, 6, 5, 9, 2))
    ours = call(name, first.to(memory_format=torch.channels_last), features.mT.contiguous().mT, 2)
    assert ours.dtype == half
    assert relative_error(ours, expected(name, first, features, 2)) < 5e-3


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("name", OPERATORS)
def test_the_default_dtype_of_torch_changes_nothing(name):
    first, features = (t.float() for t in operands(name, 2, 6, 5, 9, 2))
    ours = call(name, first, features, 2)
    assert ours.dtype == torch.float32
    assert relative_error(ours, expected(name, first, features, 2)) < 1e-6


@pytest.mark.parametrize("name", OPERATORS)
def test_an_empty_batch(name):
    first, features = operands(name, 0, 3, 4, 5, 1)
    assert call(name, first, features, 1).shape == expected(name, first, features, 1).shape


def test_the_operator_takes_the_loops_and_differentiates_them(monkeypatch):
    calls = []
    for name in OPERATORS:
        form = getattr(local_numba, name)
        monkeypatch.setattr(
            local_numba, name, lambda *a, name=name, form=form, **k: calls.append(name) or form(*a, **k)
        )
    reference, query = torch.randn(2, 1, 4, 6, 7)
    pair = [t.requires_grad_() for t in (reference, query)]
    weights = torch.randn(1, 81, 6, 7)
    ours = torch.autograd.grad((local_correlation(*pair) * weights).sum(), pair)
    assert calls == OPERATORS
    spec = torch.autograd.grad((local_reference.correlate(*pair, 4, 0.25) * weights).sum(), pair)
    torch.testing.assert_close(ours, spec)


@pytest.mark.parametrize("how", ["missing", "switched off"])
def test_the_choice_without_numba(how, monkeypatch):
    features = torch.zeros(1, 2, 3, 4)
    assert select.choose_correlation(features, 4) == "numba"
    monkeypatch.delitem(sys.modules, "gocor.ops.correlation.numba")
    monkeypatch.delattr(ops.correlation, "numba")
    monkeypatch.setattr(select, "numba_is_usable", select.numba_is_usable.__wrapped__)
    if how == "missing":
        monkeypatch.setitem(sys.modules, "numba", None)
    else:
        monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert select.choose_correlation(features, 4) == "matmul"


def test_an_error_in_a_thread_is_not_lost(monkeypatch):
    nothing = numba.cfunc("void(voidptr)")(lambda task: None)
    monkeypatch.setattr(local_numba, "_machine_code", lambda: nothing)
    with pytest.raises(MemoryError, match="no memory for temporary rows"):
        call("correlate", *operands("correlate", 1, 2, 3, 4, 1), 1)


def test_where_machine_code_cannot_be_kept():
    names = {}
    exec("def nothing(task): pass", names)  # no file, so no folder beside it
    assert local_numba._compile(names["nothing"]).address
