import importlib
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gocor.ops import (
    local_correlation,
    local_correlation_adjoint_query,
    local_correlation_adjoint_reference,
    transpose_local_volume,
)
from gocor.ops.correlation import matmul as local_tiled
from gocor.ops.correlation import reference as local_reference
from gocor.ops.correlation import tiling
from tests.conftest import relative_error

# (B, C, H, W, R): odd widths, one pixel, maps smaller than the radius, more rows than a tile, many samples
SHAPES = [(2, 5, 7, 9, 4), (1, 3, 1, 1, 4), (1, 1, 3, 2, 8), (2, 16, 9, 12, 0), (1, 8, 5, 31, 3), (9, 4, 6, 8, 1)]
OPERATORS = ["correlate", "adjoint_reference", "adjoint_query"]


def first_operand(name: str, batch: int, channels: int, height: int, width: int, radius: int) -> tuple[int, ...]:
    return (batch, channels if name == "correlate" else (2 * radius + 1) ** 2, height, width)


def by_hand(reference: torch.Tensor, query: torch.Tensor, radius: int) -> torch.Tensor:
    """The definition, pixel by pixel."""
    batch, _, height, width = reference.shape
    side = 2 * radius + 1
    out = torch.zeros(batch, side * side, height, width, dtype=reference.dtype)
    for y, x, dy, dx in itertools.product(range(height), range(width), *[range(-radius, radius + 1)] * 2):
        if 0 <= y + dy < height and 0 <= x + dx < width:
            out[:, (dy + radius) * side + dx + radius, y, x] = (
                reference[:, :, y, x] * query[:, :, y + dy, x + dx]
            ).sum(1)
    return out


def test_follows_the_definition(device):
    reference, query = torch.randn(2, 2, 3, 5, 6, dtype=torch.float64)
    expected = by_hand(reference, query, 2)
    ours = local_correlation(reference.to(device), query.to(device), 2, normalize="sum").cpu()
    torch.testing.assert_close(ours, expected)
    mean = local_correlation(reference.to(device), query.to(device), radius=2).cpu()
    torch.testing.assert_close(mean, expected / 3)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_equal_slices(name, shape, device):
    *size, radius = shape
    first = torch.randn(first_operand(name, *size, radius), dtype=torch.float64, device=device)
    features = torch.randn(size, dtype=torch.float64, device=device)
    expected = getattr(local_reference, name)(first, features, radius, 0.3)
    torch.testing.assert_close(getattr(local_tiled, name)(first, features, radius, 0.3), expected)


@pytest.mark.parametrize("name", OPERATORS)
def test_tiles_equal_slices_when_a_sample_takes_many_products(name, monkeypatch, device):
    monkeypatch.setattr(tiling, "BUDGET", {"cpu": 1, "accelerator": 1})
    first = torch.randn(first_operand(name, 3, 4, 13, 21, 2), dtype=torch.float64, device=device)
    features = torch.randn(3, 4, 13, 21, dtype=torch.float64, device=device)
    expected = getattr(local_reference, name)(first, features, 2, 1.0)
    torch.testing.assert_close(getattr(local_tiled, name)(first, features, 2, 1.0), expected)


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 19), st.integers(1, 19)),
    radius=st.integers(0, 5),
    seed=st.integers(0, 2**31),
)
def test_adjoints_are_adjoint_and_transposition_exchanges_the_images(size, radius, seed):
    generator = torch.Generator().manual_seed(seed)
    reference, query = torch.randn(2, *size, dtype=torch.float64, generator=generator)
    volume = torch.randn(first_operand("", *size, radius), dtype=torch.float64, generator=generator)
    correlated = local_correlation(reference, query, radius)
    product = (correlated * volume).sum()
    torch.testing.assert_close((local_correlation_adjoint_reference(volume, query, radius) * reference).sum(), product)
    torch.testing.assert_close((local_correlation_adjoint_query(volume, reference, radius) * query).sum(), product)
    torch.testing.assert_close(transpose_local_volume(correlated, radius), local_correlation(query, reference, radius))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("radius", [0, 1, 2])
def test_gradients_to_the_second_order(name, radius, device):
    first = torch.randn(first_operand(name, 2, 2, 3, 4, radius), dtype=torch.float64, device=device, requires_grad=True)
    features = torch.randn(2, 2, 3, 4, dtype=torch.float64, device=device, requires_grad=True)
    operator = {
        "correlate": local_correlation,
        "adjoint_reference": local_correlation_adjoint_reference,
        "adjoint_query": local_correlation_adjoint_query,
    }[name]
    assert torch.autograd.gradcheck(lambda a, b: operator(a, b, radius), (first, features))
    assert torch.autograd.gradgradcheck(lambda a, b: operator(a, b, radius), (first, features), fast_mode=True)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("radius", [1, 2])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_opcheck(name, radius, layout, device):
    first = (
        torch.randn(first_operand(name, 2, 3, 4, 5, radius), device=device).to(memory_format=layout).requires_grad_()
    )
    features = torch.randn(2, 3, 4, 5, device=device).to(memory_format=layout).requires_grad_()
    operator = "local_correlation" if name == "correlate" else f"local_correlation_{name}"
    torch.library.opcheck(
        getattr(torch.ops.gocor, operator).default, (first, features, radius, 0.5, torch.float32, False)
    )


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("radius", [1, 4])
def test_sixteen_bit_inputs_are_accumulated_in_float32(half, radius, device):
    reference, query = (20 * torch.randn(2, 1, 512, 6, 7, device=device)).to(half)
    for normalize, bound in (("mean", 1e-3 if half == torch.float16 else 8e-3), ("sum", None)):
        ours = local_correlation(reference, query, radius, normalize=normalize)
        expected = local_correlation(reference.double(), query.double(), radius, normalize=normalize)
        assert ours.dtype == half
        if bound is not None:  # a mean that would overflow float16 as a sum
            assert relative_error(ours, expected) < bound


@pytest.mark.parametrize("name", ["reference", "matmul", "exported", "numba"])
def test_a_float16_mean_is_finite_where_it_can_be_represented(name):
    """Features of norm 1e4: the sum of their squares, 1e8, has no place in float16, their mean 4.9e4 has."""
    if name == "numba":
        pytest.importorskip("numba")
    file = importlib.import_module(f"gocor.ops.correlation.{name}")
    features = 1e4 * torch.nn.functional.normalize(torch.randn(1, 2048, 3, 4), dim=1)
    half, scale = features.half(), 1 / 2048
    exact = local_reference.correlate(half.double(), half.double(), 1, scale)
    volume = file.correlate(half, half, 1, scale)
    assert volume.dtype == torch.float16
    assert volume.max() > 4.8e4
    assert relative_error(volume, exact) < 1e-3
    filters = file.adjoint_reference(volume, half, 1, scale)  # up to 4.9e4 · 2e2 · 9 before the scale
    assert relative_error(filters, local_reference.adjoint_reference(volume.double(), half.double(), 1, scale)) < 1e-3


def test_compiles_to_one_node(device):
    """No graph break, and no graph that is unrolled over the 81 displacements."""
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    reference, query = torch.randn(2, 1, 4, 6, 7, device=device)
    compiled = torch.compile(local_correlation, fullgraph=True, backend=counter)
    torch.testing.assert_close(compiled(reference, query), local_correlation(reference, query))
    (graph,) = counter.graphs
    assert len([node for node in graph.graph.nodes if node.op == "call_function"]) < 10


def test_an_export_holds_no_custom_operator():
    class Layer(torch.nn.Module):
        def forward(self, reference, query):
            return local_correlation(reference, query, 2)

    pair = tuple(torch.randn(2, 1, 4, 6, 7))
    program = torch.export.export(Layer(), pair)
    assert not [node for node in program.graph.nodes if "gocor" in str(node.target)]
    torch.testing.assert_close(program.module()(*pair), local_correlation(*pair, 2))


def test_works_under_autocast(device):
    reference, query = torch.randn(2, 1, 8, 6, 7, device=device)
    expected = local_correlation(reference, query)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert torch.equal(local_correlation(reference, query), expected)  # float32 in, float32 computed
        assert local_correlation(reference.bfloat16(), query).dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"radius": -1}, ValueError, "radius must be at least 0, got -1"),
        ({"radius": 2.0}, TypeError, "radius must be an integer"),
        ({"normalize": "max"}, ValueError, "normalize must be one of 'mean', 'sum', got 'max'"),
        ({"query": torch.ones(1, 3, 4, 6)}, ValueError, r"same height and width, got \(4, 5\) and \(4, 6\)"),
        ({"query": torch.ones(1, 2, 4, 5)}, ValueError, "same channels, got 3 and 2"),
        ({"query": torch.ones(2, 3, 4, 5)}, ValueError, "one batch size, got 1 and 2"),
        ({"query": torch.ones(1, 3, 4, 5).double()}, TypeError, "one dtype, got torch.float32 and torch.float64"),
        ({"query": torch.ones(1, 3, 4, 5, device="meta")}, ValueError, "one device, got cpu and meta"),
        ({"query": torch.ones(3, 4, 5)}, ValueError, r"query must have shape \(B, C, H, W\)"),
        ({"reference": torch.ones(1, 3, 4, 5).int()}, TypeError, "floating-point"),
        ({"reference": [1.0]}, TypeError, "reference must be a tensor, got list"),
        ({"reference": torch.ones(1, 0, 4, 5)}, ValueError, "C, H, W ≥ 1"),
    ],
)
def test_bad_arguments(change, error, message):
    arguments = {"reference": torch.ones(1, 3, 4, 5), "query": torch.ones(1, 3, 4, 5), "radius": 2} | change
    with pytest.raises(error, match=message):
        local_correlation(**arguments)


def test_bad_volume():
    with pytest.raises(ValueError, match=r"volume must have shape \(1, 25, 4, 5\), got \(1, 9, 4, 5\)"):
        local_correlation_adjoint_reference(torch.ones(1, 9, 4, 5), torch.ones(1, 3, 4, 5), 2)
