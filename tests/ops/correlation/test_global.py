import pytest
import torch

from gocor.ops import (
    global_correlation,
    global_correlation_adjoint_query,
    global_correlation_adjoint_reference,
    transpose_global_volume,
)
from tests.conftest import relative_error


def test_follows_the_definition(device):
    reference = torch.randn(2, 3, 4, 5, dtype=torch.float64, device=device)
    query = torch.randn(2, 3, 6, 7, dtype=torch.float64, device=device)
    volume = global_correlation(reference, query)
    assert volume.shape == (2, 42, 4, 5)
    expected = torch.einsum("bcyx,bckl->bklyx", reference, query).flatten(1, 2)
    torch.testing.assert_close(volume, expected)
    torch.testing.assert_close(global_correlation(reference, query, normalize="mean"), expected / 3)
    torch.testing.assert_close(transpose_global_volume(volume, (6, 7)), global_correlation(query, reference))


def test_adjoints_are_adjoint(device):
    reference = torch.randn(2, 3, 4, 5, dtype=torch.float64, device=device)
    query = torch.randn(2, 3, 6, 7, dtype=torch.float64, device=device)
    volume = torch.randn(2, 42, 4, 5, dtype=torch.float64, device=device)
    for normalize in ("sum", "mean"):
        product = (global_correlation(reference, query, normalize=normalize) * volume).sum()
        back = global_correlation_adjoint_reference(volume, query, normalize=normalize)
        torch.testing.assert_close((back * reference).sum(), product)
        back = global_correlation_adjoint_query(volume, reference, (6, 7), normalize=normalize)
        torch.testing.assert_close((back * query).sum(), product)


def test_gradients_to_the_second_order(device):
    reference = torch.randn(2, 3, 2, 3, dtype=torch.float64, device=device, requires_grad=True)
    query = torch.randn(2, 3, 3, 2, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(global_correlation, (reference, query))
    assert torch.autograd.gradgradcheck(global_correlation, (reference, query))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_opcheck(layout, device):
    reference = torch.randn(2, 3, 4, 5, device=device).to(memory_format=layout).requires_grad_()
    query = torch.randn(2, 3, 3, 2, device=device).to(memory_format=layout).requires_grad_()
    torch.library.opcheck(torch.ops.gocor.global_correlation.default, (reference, query, 0.5))


@pytest.mark.parametrize(("half", "bound"), [(torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
def test_sixteen_bit_means_do_not_overflow_as_sums(half, bound, device):
    reference, query = (20 * torch.randn(2, 1, 512, 4, 5, device=device)).to(half)
    ours = global_correlation(reference, query, normalize="mean")
    expected = global_correlation(reference.double(), query.double(), normalize="mean")
    assert ours.dtype == half
    assert relative_error(ours, expected) < bound


def test_compiles_and_exports(device):
    class Layer(torch.nn.Module):
        def forward(self, reference, query):
            return global_correlation(reference, query)

    pair = torch.randn(1, 4, 3, 5, device=device), torch.randn(1, 4, 2, 6, device=device)
    expected = global_correlation(*pair)
    torch.testing.assert_close(torch.compile(Layer(), fullgraph=True, backend="aot_eager")(*pair), expected)
    program = torch.export.export(Layer(), pair)
    assert not [node for node in program.graph.nodes if "gocor" in str(node.target)]
    torch.testing.assert_close(program.module()(*pair), expected)


def test_autocast_leaves_the_precision_alone(device):
    reference, query = torch.randn(2, 1, 8, 6, 7, device=device)
    expected = global_correlation(reference, query)
    of_reference = global_correlation_adjoint_reference(expected, query)
    of_query = global_correlation_adjoint_query(expected, reference, (6, 7))
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert torch.equal(global_correlation(reference, query), expected)
        assert global_correlation(reference.bfloat16(), query).dtype == torch.float32
        assert torch.equal(global_correlation_adjoint_reference(expected, query), of_reference)
        assert torch.equal(global_correlation_adjoint_query(expected, reference, (6, 7)), of_query)


def test_bad_arguments():
    with pytest.raises(ValueError, match="same channels, got 3 and 2"):
        global_correlation(torch.ones(1, 3, 4, 5), torch.ones(1, 2, 4, 5))
    with pytest.raises(ValueError, match=r"volume must have shape \(1, 20, 2, 2\), got \(1, 19, 2, 2\)"):
        global_correlation_adjoint_reference(torch.ones(1, 19, 2, 2), torch.ones(1, 3, 4, 5))
    with pytest.raises(ValueError, match=r"volume must have shape \(1, 6, 4, 5\)"):
        global_correlation_adjoint_query(torch.ones(1, 19, 4, 5), torch.ones(1, 3, 4, 5), (2, 3))
    with pytest.raises(ValueError, match=r"query must have shape \(B, C, H, W\).*got \(3, 4, 5\)"):
        global_correlation_adjoint_reference(torch.ones(1, 20, 2, 2), torch.ones(3, 4, 5))
    with pytest.raises(ValueError, match=r"size must be \(height, width\), got 6"):
        global_correlation_adjoint_query(torch.ones(1, 6, 4, 5), torch.ones(1, 3, 4, 5), 6)
    with pytest.raises(ValueError, match=r"volume must have shape \(2, 6, 4, 5\), got \(2, 7, 4, 5\)"):
        transpose_global_volume(torch.ones(2, 7, 4, 5), (2, 3))
    with pytest.raises(ValueError, match=r"volume must have shape \(B, C, H, W\).*got \(6, 4, 5\)"):
        transpose_global_volume(torch.ones(6, 4, 5), (2, 3))
