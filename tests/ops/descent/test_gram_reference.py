"""Local GOCor's iterations in Gram space, and their hand-written gradients, against the readable iterations."""

import pytest
import torch

from gocor import LocalGOCor
from gocor.modules.basis import local_distances
from gocor.ops.correlation import reference as local_reference
from gocor.ops.descent import gram_reference
from tests.conftest import relative_error

OPTIONS = [
    {},
    {"eta": 0.1},
    {"scale_free_step": False},
    {"reference_objective": "quadratic"},
    {"initializer": "zero"},
]


def parameters_and_options(module, channels, iters, dtype, device):
    maps = module.objective.maps(local_distances(module.radius, dtype, device)).coefficients()
    beta = getattr(module.initializer, "beta", torch.zeros(1, dtype=dtype, device=device)).to(dtype)
    decay, factor = module._squared_regularization(dtype), module._step_factor(dtype)
    stabilizer = channels * getattr(module.initializer, "stabilizer", 1.0)
    floor = module._floor(channels, dtype)
    options = gram_reference.Options(module.radius, iters, module.objective.eta, floor, stabilizer)
    return (beta, *(values.flatten() for values in maps), decay, factor), options


def perturbed(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("iters", [0, 1, 4])
@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_volume_and_gradients_equal_the_readable_iterations(options, iters, scale, device):
    module = perturbed(LocalGOCor(2, **options)).to(device, torch.float64)
    reference, query = torch.randn(2, 2, 6, 5, 7, dtype=torch.float64, device=device)
    reference = (scale * reference).requires_grad_()
    expected = module(reference, query, iters)
    gram = local_reference.correlate(reference, reference, 4, 1.0).permute(0, 2, 3, 1)
    arguments = parameters_and_options(module, 6, iters, torch.float64, reference.device)
    coefficients = gram_reference.descend(gram, *arguments)
    filters = local_reference.adjoint_reference(coefficients, reference, 2, 1.0)
    ours = local_reference.correlate(filters, query, 2, 1.0)
    torch.testing.assert_close(ours, expected)
    if not expected.requires_grad:  # filters of zeros that nothing was learnt from
        assert not ours.any()
        return
    leaves, grad = [reference, *module.parameters()], torch.randn_like(ours)
    gradients = [torch.autograd.grad(x, leaves, grad, allow_unused=True) for x in (ours, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(*(torch.zeros(1).double() if g is None else g for g in (mine, theirs)))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("iters", [0, 1, 4])
def test_hand_written_gradients_equal_autograd(options, iters, device, monkeypatch):
    monkeypatch.setattr(gram_reference, "CHUNK", 16)
    module = perturbed(LocalGOCor(2, **options)).to(device, torch.float64)
    features = torch.randn(2, 6, 5, 7, dtype=torch.float64, device=device)
    gram = local_reference.correlate(features, features, 4, 1.0).permute(0, 2, 3, 1)
    parameters, settings = parameters_and_options(module, 6, iters, torch.float64, features.device)
    leaves = [x.detach().clone().requires_grad_() for x in (gram, *parameters)]
    out = gram_reference.descend(leaves[0], tuple(leaves[1:]), settings)
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, leaves, grad, allow_unused=True)
    with torch.no_grad():
        ours = gram_reference.descend_gradients(grad, gram.detach(), tuple(leaves[1:]), settings)
    for mine, theirs, leaf in zip((ours[0].permute(0, 2, 3, 1), *ours[1:]), expected, leaves, strict=True):
        theirs = torch.zeros_like(leaf) if theirs is None else theirs
        assert relative_error(mine.reshape(leaf.shape), theirs) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.7, 33.3, 99.7, 123.4, 3000.0])
@pytest.mark.parametrize(("radius", "size", "iters"), [(2, (4, 5), 3), (4, (9, 9), 7)])
def test_a_flat_region_has_the_gradients_of_the_readable_iterations(dtype, value, radius, size, iters, device):
    """There G has rank one, and the first step leads to the optimum: what remains of g is rounding."""
    module = LocalGOCor(radius, form="filters").to(device, torch.float64)
    features = torch.full((2, 1, 8, *size), value, dtype=torch.float64, device=device)
    leaves = [f.requires_grad_() for f in features.unbind()]
    expected = module(*leaves, iters)
    grad = torch.randn_like(expected)
    exact = torch.autograd.grad(expected, [leaves[0], *module.parameters()], grad, allow_unused=True)

    reference = features[0].detach().to(dtype).requires_grad_()
    gram = local_reference.correlate(reference, reference, 2 * radius, 1.0).permute(0, 2, 3, 1)
    parameters, options = parameters_and_options(module, 8, iters, dtype, reference.device)
    parameters = [p.detach().to(dtype) for p in parameters]
    coefficients = gram_reference.descend(gram.detach(), parameters, options)
    filters = local_reference.adjoint_reference(coefficients, features[0].detach().to(dtype), radius, 1.0)
    ours = local_reference.correlate(filters, features[1].detach().to(dtype), radius, 1.0)
    assert relative_error(ours, expected) < 1e-5

    bar_filters = local_reference.adjoint_reference(grad.to(dtype), features[1].detach().to(dtype), radius, 1.0)
    bar = local_reference.correlate(bar_filters, features[0].detach().to(dtype), radius, 1.0)
    gradients = gram_reference.descend_gradients(bar, gram.detach(), parameters, options)
    of_factor = exact[1 + [n for n, _ in module.named_parameters()].index("log_step_factor")]
    assert abs(of_factor) < 1e-6  # every s leads to the optimum in the end
    assert abs(gradients.step_factor) < 1e-6
    (through_gram,) = torch.autograd.grad(gram.permute(0, 3, 1, 2), reference, gradients.gram)
    through_filters = local_reference.adjoint_query(coefficients, bar_filters, radius, 1.0)
    assert relative_error(through_gram + through_filters, exact[0]) < 1e-3
