"""The closed-form gradient and step, against autograd of the objective as the paper writes it (with the ½)."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from gocor import GlobalGOCor, LocalGOCor
from gocor.ops.descent.reference import quotient


def plain_scores(module, filters, features):
    """Correlation in plain operators that support forward-mode differentiation."""
    if isinstance(module, GlobalGOCor):
        return torch.einsum("bcyx,bckl->bklyx", filters, features).flatten(1, 2)
    side, (height, width) = 2 * module.radius + 1, features.shape[2:]
    padded = F.pad(features, (module.radius,) * 4)
    shifts = [padded[:, :, i : i + height, j : j + width] for i, j in itertools.product(range(side), range(side))]
    return torch.stack([(filters * shift).sum(1) for shift in shifts], 1)


def distances(module, height, width):
    if isinstance(module, LocalGOCor):
        axis = torch.arange(-module.radius, module.radius + 1, dtype=torch.float64)
        return torch.hypot(*torch.meshgrid(axis, axis, indexing="ij")).view(1, -1, 1, 1)
    pixels = torch.cartesian_prod(torch.arange(height).double(), torch.arange(width).double())
    return torch.cdist(pixels, pixels).view(1, -1, height, width)


def residuals(module, filters, reference, query):
    """[σ_η(C(w, f^r); v⁺, v⁻) − y, R ∗ C(w, f^q), λw] as the paper defines them."""
    maps = module.objective.maps(distances(module, *reference.shape[2:]))
    positive, negative, target = maps.weight, maps.weight * maps.mask, maps.weight * maps.target
    scores, eta = plain_scores(module, filters, reference), module.objective.eta
    magnitude = (scores.square() + eta**2).sqrt() - eta if eta else scores.abs()
    parts = [(positive - negative) / 2 * magnitude + (positive + negative) / 2 * scores - target]
    if module.query_objective is not None:
        volume = plain_scores(module, filters, query)
        if isinstance(module, GlobalGOCor):
            volume = volume.unflatten(1, query.shape[2:]).permute(0, 3, 4, 1, 2)
        else:
            volume = volume.unflatten(1, (2 * module.radius + 1,) * 2)
        parts.append(module.query_objective(volume))
    return [*parts, module.regularization * filters]


MODULES = {
    "global, reference": lambda **o: GlobalGOCor(5, query_objective=False, form="filters", **o),
    "global, reference + query": lambda **o: GlobalGOCor(5, query_channels=(3, 2), form="filters", **o),
    "local, reference": lambda **o: LocalGOCor(2, **o),
    "local, reference + query": lambda **o: LocalGOCor(2, query_objective=True, query_channels=(3, 2), **o),
}


def make(name, **options):
    module = MODULES[name](**options).double()
    with torch.no_grad():  # away from the start values, so that nothing cancels
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


@pytest.mark.parametrize("options", [{}, {"eta": 0.1}, {"reference_objective": "quadratic"}], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_gradient_and_step_equal_what_autograd_gives(name, options):
    module = make(name, **options)
    reference, query = torch.randn(2, 2, 5, 4, 5, dtype=torch.float64)
    told = module.explain(reference, query, iters=2)
    per_sample = module.query_objective is not None
    for n in range(2):
        filters = told.filters[n].requires_grad_()
        parts = residuals(module, filters, reference, query)
        objective = sum(part.square().sum() for part in parts) / 2
        torch.testing.assert_close(objective.detach(), told.objective[n].sum())
        (gradient,) = torch.autograd.grad(objective, filters)
        _, along = torch.func.jvp(lambda w: residuals(module, w, reference, query), (filters.detach(),), (gradient,))
        if per_sample:
            curvature = sum(part.square().flatten(1).sum(1) for part in along).view(-1, 1, 1, 1)
            alpha = gradient.square().sum((1, 2, 3), keepdim=True) / curvature
        else:  # every location has its own line minimum
            curvature = sum(part.square().sum(1, keepdim=True) for part in along)
            alpha = gradient.square().sum(1, keepdim=True) / curvature
        step = module.log_step_factor.exp() * alpha
        torch.testing.assert_close(told.step_lengths[n], step.detach())
        torch.testing.assert_close(told.filters[n + 1], (filters - step * gradient).detach())


@pytest.mark.parametrize("name", MODULES)
def test_a_quadratic_objective_never_increases(name):
    module = MODULES[name](reference_objective="quadratic").double()
    if module.query_objective is not None:
        torch.nn.init.normal_(module.query_objective.weight1, std=0.3)
        torch.nn.init.normal_(module.query_objective.weight2, std=0.3)
    reference, query = torch.randn(2, 3, 5, 6, 5, dtype=torch.float64)
    objective = module.explain(reference, query, iters=12).objective
    assert (objective.diff(dim=0) < 0).all()


def test_the_published_floor_stalls_small_features_and_the_scale_free_step_does_not():
    features = F.normalize(torch.rand(1, 256, 8, 8), dim=1)
    floored, free = LocalGOCor(scale_free_step=False), LocalGOCor()
    fall = {m: m.explain(features, features, iters=7).objective for m in (floored, free)}
    assert fall[free][7] < 0.75 * fall[free][1]
    assert fall[floored][7] > 0.95 * fall[floored][1]


def test_the_quotient_of_tiny_numbers_has_the_bits_of_a_division_and_a_finite_gradient():
    numerator = torch.tensor([0.0, 1e-30, 1e-20, 3.0, 1e30, 1e30])
    denominator = torch.tensor([1e-30, 1.2e-30, 1e-30, 7.0, 1e38, torch.inf])
    upstream = torch.tensor([1.0, 1e-15, 1e-15, 1.0, 1.0, 1.0])
    leaves = numerator.clone().requires_grad_(), denominator.clone().requires_grad_()
    found = quotient(*leaves)
    assert found.equal(numerator / denominator)
    assert found.equal(quotient(numerator, denominator))
    by_numerator, by_denominator = torch.autograd.grad((found * upstream).sum(), leaves)
    wide = denominator.double()
    torch.testing.assert_close(by_numerator, (upstream / wide).float())
    torch.testing.assert_close(by_denominator, (-upstream * (numerator / wide) / wide).float())


def test_derivatives_of_every_order_of_the_quotient():
    leaves = [torch.rand(5, dtype=torch.float64).add(0.5).requires_grad_() for _ in range(2)]
    assert torch.autograd.gradcheck(quotient, leaves)
    assert torch.autograd.gradgradcheck(quotient, leaves)
    third = torch.func.grad(torch.func.grad(torch.func.grad(quotient, 1), 1), 1)
    torch.testing.assert_close(third(*(x[0] for x in leaves)), -6 * leaves[0][0] / leaves[1][0] ** 4)
