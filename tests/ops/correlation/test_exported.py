"""Local correlation in few operators, for exported graphs, against the specification."""

import pytest
import torch

from gocor.ops.correlation import exported, reference


@pytest.mark.parametrize("radius", [0, 1, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_it_is_the_specification(radius, dtype):
    first, second = torch.randn(2, 2, 3, 7, 5, dtype=torch.float64).to(dtype)
    volume = torch.randn(2, (2 * radius + 1) ** 2, 7, 5, dtype=torch.float64).to(dtype)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == torch.float16 else {}
    found, expected = (form.correlate(first, second, radius, 0.5) for form in (exported, reference))
    torch.testing.assert_close(found, expected, **tolerance)
    found, expected = (form.adjoint_reference(volume, second, radius, 0.5) for form in (exported, reference))
    torch.testing.assert_close(found, expected, **tolerance)


def test_a_graph_is_small():
    class Layer(torch.nn.Module):
        def forward(self, first, second):
            return exported.correlate(first, second, 4, 1.0)

    program = torch.export.export(Layer(), (torch.randn(1, 3, 12, 14), torch.randn(1, 3, 12, 14)))
    assert len(program.graph.nodes) < 60
