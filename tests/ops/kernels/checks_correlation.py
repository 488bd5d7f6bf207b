"""The Triton kernels of local correlation against the specification."""

import pytest
import torch

from gocor.ops import select
from gocor.ops.correlation import lookups, lookups_triton
from gocor.ops.correlation import reference as specification
from gocor.ops.correlation import triton as kernels
from tests.conftest import relative_error
from tests.ops.kernels.common import DEVICE, INTERPRETED, poisoned_memory

SHAPES = [(2, 5, 7, 9, 4), (1, 20, 11, 13, 2), (1, 3, 1, 1, 4), (1, 16, 9, 12, 0), (1, 33, 5, 18, 3), (1, 4, 9, 10, 8)]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("name", ["correlate", "adjoint_reference", "adjoint_query"])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_equal_the_specification(name, shape, monkeypatch):
    batch, channels, height, width, radius = shape
    rows = channels if name == "correlate" else (2 * radius + 1) ** 2
    first = torch.randn(batch, rows, height, width, device=DEVICE)
    features = torch.randn(batch, channels, height, width, device=DEVICE)
    exact = getattr(specification, name)(first.double(), features.double(), radius, 0.3)
    plain = getattr(specification, name)(first, features, radius, 0.3)
    with poisoned_memory(monkeypatch):
        ours = getattr(kernels, name)(first, features, radius, 0.3)
    assert relative_error(ours, exact) <= max(2 * relative_error(plain, exact), 3e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_inputs(dtype):
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("the interpreter computes in NumPy, which has no bfloat16")
    reference, query = torch.randn(2, 1, 20, 9, 10, device=DEVICE).to(dtype)
    exact = specification.correlate(reference.double(), query.double(), 2, 1.0)
    plain = specification.correlate(reference, query, 2, 1.0)
    ours = kernels.correlate(reference, query, 2, 1.0)
    assert ours.dtype == dtype
    assert relative_error(ours, exact) <= 2 * relative_error(plain, exact)


@pytest.mark.parametrize("side", ["reference", "query", "both"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("exact_products", [False, True])
def test_operands_of_different_dtype_and_layout(side, layout, exact_products):
    limit = 1e-6 if INTERPRETED or exact_products else 1e-3
    volume = torch.randn(2, 25, 9, 10, device=DEVICE)
    features = torch.randn(2, 20, 9, 10, device=DEVICE).half().to(memory_format=layout)
    sides = ("reference", "query") if side == "both" else (side,)
    exact = sum(getattr(specification, f"adjoint_{name}")(volume.double(), features.double(), 2, 1.0) for name in sides)
    ours = kernels.adjoint(volume, features, 2, 1.0, side, dtype=torch.float32, exact=exact_products)
    assert ours.is_contiguous(memory_format=layout)
    assert relative_error(ours, exact) < limit
    exact = specification.correlate(exact, features.double(), 2, 1.0)
    ours = kernels.correlate(ours, features, 2, 1.0, dtype=torch.float32, exact=exact_products)
    assert relative_error(ours, exact) < 2 * limit


@pytest.mark.parametrize("layout", LAYOUTS)
def test_autocorrelation(layout):
    features = torch.randn(1, 20, 9, 5, device=DEVICE).to(memory_format=layout)
    exact = specification.correlate(features.double(), features.double(), 6, 1.0).permute(0, 2, 3, 1)
    assert relative_error(kernels.autocorrelate(features, 6), exact) < 3e-7


@pytest.fixture
def tf32():
    """A function that allows or forbids TF32; the setting before is restored."""
    before = torch.backends.cuda.matmul.allow_tf32

    def allow(value: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = value

    yield allow
    allow(before)


def test_precision_of_products(tf32):
    single, half = torch.zeros(1), torch.zeros(1).half()
    tf32(False)
    assert kernels.precision(single, single) == "tf32x3"
    assert kernels.precision(single, half) == kernels.precision(half, half) == "tf32"
    assert kernels.precision(single, half, exact=True) == "tf32x3"
    tf32(True)
    assert kernels.precision(single, single) == "tf32"
    assert kernels.precision(single, single, exact=True) == "tf32x3"
    assert kernels.precision(half, half, exact=True) == "tf32"  # exact in TF32


@pytest.mark.parametrize(
    ("size", "query", "channels", "radius"),
    [((3, 4), (5, 6), 7, 1), ((2, 3), (4, 9), 40, 4), ((1, 1), (1, 1), 3, 2), ((2, 2), (3, 3), 5, 0)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_lookup(size, query, channels, radius, dtype, monkeypatch):
    filters = torch.randn(2, channels, *size, device=DEVICE)
    features = torch.randn(2, channels, *query, device=DEVICE).to(dtype)
    coordinates = 3 * torch.randn(2, 2, *size, device=DEVICE) + 2
    coordinates[0, 0, 0, 0] = float("nan")
    plain = lookups.ScoreWindows(filters, features, radius)(coordinates)
    with poisoned_memory(monkeypatch):
        ours = lookups_triton.lookup(filters, features, coordinates, radius)
    assert ours.dtype == dtype
    assert ours.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(
        ours, plain, rtol=1e-2 if dtype == torch.float16 else 1e-4, atol=1e-2 if dtype == torch.float16 else 1e-4
    )


@pytest.mark.parametrize(
    ("size", "query", "channels", "radius"),
    [((3, 4), (5, 6), 7, 1), ((2, 3), (4, 9), 40, 3), ((1, 1), (1, 1), 3, 2), ((2, 2), (3, 3), 5, 0)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_gradients_of_a_lookup(size, query, channels, radius, dtype, wanted, monkeypatch):
    filters = torch.randn(2, channels, *size, device=DEVICE)
    features = torch.randn(2, channels, *query, device=DEVICE).to(dtype)
    coordinates = 2 * torch.randn(2, 2, *size, device=DEVICE) + 2
    coordinates[0, 0, 0, 0] = float("nan")
    grad = torch.randn(2, (2 * radius + 1) ** 2, *size, device=DEVICE).to(dtype)
    monkeypatch.setattr(select, "MAX_DENSE_LOOKUP", 10**9)
    plain = torch.ops.gocor.lookup_backward(grad, filters, features, coordinates, radius, *wanted)
    with poisoned_memory(monkeypatch):
        ours = lookups_triton.lookup_backward(grad, filters, features, coordinates, radius, *wanted)
    tolerance = 1e-2 if dtype == torch.float16 else 1e-4
    for found, expected, needed in zip(ours, plain, wanted, strict=True):
        assert (found is not None) == needed
        if needed:
            torch.testing.assert_close(found, expected.float(), rtol=tolerance, atol=tolerance)


def test_gradients_of_lookups_in_large_queries_are_a_kernel(monkeypatch):
    filters = torch.randn(1, 5, 3, 4, device=DEVICE, requires_grad=True)
    features = torch.randn(1, 5, 6, 7, device=DEVICE, requires_grad=True)
    coordinates = 2 * torch.randn(1, 2, 3, 4, device=DEVICE) + 2

    def gradients(limit):
        monkeypatch.setattr(select, "MAX_DENSE_LOOKUP", limit)
        return torch.autograd.grad(lookups.lookup(filters, [features], coordinates, 2).square().sum(), inputs)

    inputs, calls = (filters, features), []
    monkeypatch.setattr(select, "uses_lookup_kernel", lambda *a: True)  # the interpreter's tensors are on the CPU
    kernel = lookups_triton.lookup_backward
    monkeypatch.setattr(lookups_triton, "lookup_backward", lambda *a: calls.append(1) or kernel(*a))
    for ours, plain in zip(gradients(41), gradients(42), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)
    assert len(calls) == 1
