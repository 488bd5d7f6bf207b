"""The regulariser: absolute as published, or relative to the features' norm."""

import pytest
import torch
import torch.nn.functional as F

from gocor import GlobalGOCor, LocalGOCor

FORMS = [
    *((LocalGOCor, form) for form in ("filters", "tiles")),
    *((GlobalGOCor, form) for form in ("filters", "gram", "strips")),
]


def module_of(kind, form="auto", **options):
    if kind is LocalGOCor:
        return LocalGOCor(2, form=form, **options).double()
    return GlobalGOCor(6, query_objective=False, initializer="simple", form=form, **options).double()


def pair(*size):
    return torch.randn(2, *size, dtype=torch.float64).unbind()


@pytest.mark.parametrize(("kind", "form"), FORMS)
@torch.no_grad()
def test_a_relative_regularizer_does_not_depend_on_the_scale_of_the_features(kind, form):
    reference, query = pair(3, 6, 5, 7)
    scale = torch.tensor([1.0, 300.0, 0.7]).double().view(3, 1, 1, 1)
    relative = module_of(kind, form, regularizer="relative")
    scaled, plain = relative(scale * reference, scale * query), relative(reference, query)
    torch.testing.assert_close(scaled, plain, rtol=1e-3, atol=1e-4)  # but for the initialiser's stabiliser
    absolute = module_of(kind, form, regularization=0.25)
    assert not torch.allclose(absolute(scale * reference, scale * query), absolute(reference, query), rtol=0.05)


@pytest.mark.parametrize(("kind", "form"), FORMS)
@torch.no_grad()
def test_both_are_the_same_for_features_of_unit_norm(kind, form):
    reference, query = (F.normalize(x, dim=1) for x in pair(2, 6, 5, 7))
    relative, absolute = module_of(kind, form, regularizer="relative"), module_of(kind, form, regularization=0.25)
    torch.testing.assert_close(relative(reference, query), absolute(reference, query))


@pytest.mark.parametrize("kind", [LocalGOCor, GlobalGOCor])
def test_gradients_of_a_relative_regularizer(kind):
    module, (reference, query) = module_of(kind, regularizer="relative", eta=0.1), pair(2, 6, 3, 4)

    def volume(reference, query, log_regularization):
        return torch.func.functional_call(module, {"log_regularization": log_regularization}, (reference, query))

    leaves = [x.clone().requires_grad_() for x in (reference, query, module.log_regularization.detach())]
    assert torch.autograd.gradcheck(volume, leaves, fast_mode=True)


@pytest.mark.parametrize("kind", [LocalGOCor, GlobalGOCor])
def test_zero_is_a_stationary_point_of_lambda_and_of_the_weight_of_the_own_pixel(kind):
    """Both enter the objective squared, so that their gradients are odd functions of them."""
    reference, query = pair(1, 6, 5, 7)

    def gradients(regularization, weight):
        torch.manual_seed(0)
        module = module_of(kind, regularization=regularization)
        with torch.no_grad():
            module.objective.weight[0] = weight
        volume = module(reference, query)
        (volume * torch.linspace(0, 1, volume.numel(), dtype=volume.dtype).view_as(volume)).sum().backward()
        return volume, module.regularization.grad, module.objective.weight.grad[0]

    volume, by_lambda, by_weight = gradients(0.3, 0.7)
    mirrored, by_minus_lambda, by_minus_weight = gradients(-0.3, -0.7)
    torch.testing.assert_close(mirrored, volume)
    torch.testing.assert_close((by_minus_lambda, by_minus_weight), (-by_lambda, -by_weight))
    torch.testing.assert_close(gradients(2e-3, 0.7)[1], 2 * gradients(1e-3, 0.7)[1], rtol=1e-3, atol=0)
    assert by_lambda != 0
    assert by_weight != 0
    assert gradients(0.3, 0.0)[2] == 0


def test_a_relative_regularizer_cannot_die():
    """An absolute one gets no gradient below its lower bound."""
    reference, query = pair(1, 6, 5, 7)
    absolute = LocalGOCor(2, regularization=1e-6).double()
    absolute(reference, query).sum().backward()
    assert absolute.regularization.grad == 0
    relative = LocalGOCor(2, regularizer="relative", regularization=1e-2).double()
    relative(reference, query).sum().backward()
    assert relative.log_regularization.grad != 0


def amplification(module, epsilon, size, dtype):
    """‖∂⟨w, q⟩/∂f‖·‖f‖ / (‖w‖·‖q‖) for features whose left half is flat but for noise of size ε."""
    torch.manual_seed(0)
    features = torch.randn(1, 64, *size, dtype=torch.float64)
    base = torch.randn(1, 64, 1, 1, dtype=torch.float64)
    half = size[1] // 2
    features[..., :half] = base + epsilon * features[..., :half]
    features = F.normalize(features, dim=1).to(dtype).requires_grad_()
    filters = module.to(dtype).filters(features)
    q = torch.randn_like(filters)
    (gradient,) = torch.autograd.grad((filters * q).sum(), features)
    assert filters[..., :half].norm(dim=1).max() < 10  # a plain filter of unit norm has 1
    return (gradient.norm() * features.norm() / (filters.norm() * q.norm())).item()


@pytest.mark.parametrize("epsilon", [0.3, 0.1, 1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [(12, 16), (17, 40)])
def test_a_relative_regularizer_bounds_gradients_in_flat_regions(epsilon, dtype, size):
    assert amplification(LocalGOCor(4, regularizer="relative"), epsilon, size, dtype) < 20


def test_published_parameters_need_the_published_rule():
    with pytest.raises(ValueError, match="published parameters need regularizer='absolute'"):
        LocalGOCor(regularizer="relative").load_published({})
    with pytest.raises(ValueError, match="regularizer must be one of"):
        LocalGOCor(regularizer="none")
    with pytest.raises(ValueError, match="regularization must be positive if it is relative"):
        LocalGOCor(regularizer="relative", regularization=0.0)


@pytest.mark.parametrize(("kind", "form"), [(LocalGOCor, "filters"), (GlobalGOCor, "filters"), (GlobalGOCor, "gram")])
@pytest.mark.parametrize("noise", [0.0, 1e-6])
@pytest.mark.parametrize("norm", [1e-20, 1e-8, 1e-7, 1e-5, 3e-5, 1e-4, 1.0, 1e8])
def test_gradients_of_flat_features_of_any_norm_are_finite(kind, form, noise, norm):
    torch.manual_seed(0)
    base = torch.randn(1, 6, 1, 1).expand(2, 6, 5, 7)
    reference, query = ((norm * F.normalize(base + noise * torch.randn(2, 6, 5, 7), dim=1)) for _ in range(2))
    reference.requires_grad_()
    query.requires_grad_()
    module = module_of(kind, form, regularizer="relative").float()
    volume = module(reference, query)
    volume.square().mean().backward()
    assert volume.isfinite().all()
    assert all(x.grad.isfinite().all() for x in (reference, query, *module.parameters()))
