"""The Gram form is the filters' form, in value and in every gradient."""

import pytest
import torch

from gocor import GlobalGOCor
from tests.conftest import relative_error, results_of_flat_images


def value_and_gradients(form, reference, query, iters, **options):
    torch.manual_seed(1)
    module = GlobalGOCor(reference.shape[1], iters=iters, form=form, **options).to(reference)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    reference, query = reference.clone().requires_grad_(), query.clone().requires_grad_()
    volume = module(reference, query)
    volume.backward(torch.linspace(-1, 1, volume.numel(), dtype=volume.dtype, device=volume.device).view_as(volume))
    leaves = {"reference": reference, "query": query, **dict(module.named_parameters())}
    # No path to a leaf and a path of zeros are the same gradient.
    return volume.detach(), {k: torch.zeros_like(v) if v.grad is None else v.grad for k, v in leaves.items()}


@pytest.mark.parametrize("query_objective", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"eta": 0.1}, {"reference_objective": "quadratic"}, {"initializer": "zero"}], ids=str
)
@pytest.mark.parametrize("sizes", [((4, 5), (4, 5)), ((3, 7), (5, 2)), ((1, 1), (1, 1))])
@pytest.mark.parametrize("iters", [0, 1, 4])
def test_same_value_and_gradients(query_objective, options, sizes, iters, device):
    reference, query = (torch.randn(2, 6, *size, dtype=torch.float64, device=device) for size in sizes)
    results = [
        value_and_gradients(form, reference, query, iters, query_objective=query_objective, **options)
        for form in ("filters", "gram")
    ]
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scale_free_step", [False, True])
def test_same_step_rule(scale_free_step, device):
    reference, query = 1e-3 * torch.randn(2, 1, 6, 4, 4, dtype=torch.float64, device=device)
    results = [
        value_and_gradients(form, reference, query, 3, scale_free_step=scale_free_step)[0]
        for form in ("filters", "gram")
    ]
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("value", [0.7, 33.3, 3000.0])
def test_flat_images_whatever_the_rounding(value, monkeypatch, device):
    """All features are the same, and products of matrices are as inexact as they may be."""
    multiply = torch.bmm

    def multiply_roughly(first, second):
        product = multiply(first, second)
        return product * (1 + torch.finfo(product.dtype).eps * torch.randint_like(product, -2, 3))

    on_filters, in_gram_space = (GlobalGOCor(8, query_objective=False, form=form) for form in ("filters", "gram"))
    exact = results_of_flat_images(on_filters.double(), value, (4, 5))
    monkeypatch.setattr(torch, "bmm", multiply_roughly)
    results = results_of_flat_images(in_gram_space.to(device), value, (4, 5))
    for ours, true in zip(results, exact, strict=True):
        assert relative_error(ours, true) < 1e-5
