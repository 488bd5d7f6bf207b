"""The optimised filter map as a result of its own."""

import pytest
import torch

from gocor import GlobalGOCor, LocalGOCor, global_correlation, local_correlation

OPTIONS = [{}, {"regularizer": "relative"}, {"initializer": "zero"}, {"initializer": "context"}]


def pair(*size, dtype=torch.float64):
    return torch.randn(2, *size, dtype=dtype).unbind()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("grad", [True, False])
def test_local_filters_give_the_volume(options, grad):
    module, (reference, query) = LocalGOCor(2, **options).double(), pair(2, 6, 7, 9)
    with torch.set_grad_enabled(grad):
        filters = module.filters(reference)
        assert filters.shape == reference.shape
        volume = local_correlation(filters, query, 2, normalize="sum")
        torch.testing.assert_close(volume, module(reference, query))


@pytest.mark.parametrize("options", [*OPTIONS, {"query_objective": True}], ids=str)
def test_global_filters_give_the_volume(options):
    module = GlobalGOCor(6, **{"query_objective": False, **options}).double()
    reference, query = torch.randn(2, 6, 4, 5).double(), torch.randn(2, 6, 3, 6).double()
    filters = module.filters(reference, query if module.query_objective is not None else None)
    torch.testing.assert_close(global_correlation(filters, query), module(reference, query))
    torch.testing.assert_close(module.filters(reference, query, iters=0), module.initializer(reference))


def test_filters_are_differentiable():
    module, (reference, _) = LocalGOCor(1, eta=0.1).double(), pair(1, 3, 4, 5)
    assert torch.autograd.gradcheck(module.filters, (reference.requires_grad_(),), fast_mode=True)
    module.filters(reference).sum().backward()
    assert module.objective.target.grad.abs().sum() > 0


def test_sixteen_bit_features_give_float32_filters():
    reference = torch.randn(1, 8, 6, 7).bfloat16()
    for module in (LocalGOCor(2), GlobalGOCor(8, query_objective=False)):
        filters = module.filters(reference)
        assert filters.dtype == torch.float32
        torch.testing.assert_close(filters, module.filters(reference.float()))


def test_filters_that_depend_on_the_query_need_it():
    reference = torch.randn(1, 8, 6, 7)
    with pytest.raises(ValueError, match="the filters depend on the query"):
        LocalGOCor(2, query_objective=True).filters(reference)
    with pytest.raises(ValueError, match="the filters depend on the query: pass it"):
        GlobalGOCor(8).filters(reference)


def test_filters_can_be_exported():
    module, reference = LocalGOCor(1).eval(), torch.randn(1, 4, 6, 7)

    class Filters(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gocor = module

        def forward(self, x):
            return self.gocor.filters(x)

    with torch.no_grad():
        exported = torch.export.export(Filters(), (reference,))
        torch.testing.assert_close(exported.module()(reference), module.filters(reference))
    assert not any("gocor::" in str(node.target) for node in exported.graph.nodes)
