import pytest
import torch

from gocor.modules.initializers import INITIALIZERS, build_initializer
from gocor.modules.options import GOCorOptions


def test_unknown_name_and_missing_channels():
    with pytest.raises(ValueError, match=r"initializer must be one of 'zero', 'simple'.*got 'best'"):
        GOCorOptions(initializer="best")
    with pytest.raises(ValueError, match="pass channels="):
        GOCorOptions(initializer="flexible-simple")


def test_simple_filters_answer_beta_on_their_own_pixel():
    features = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    initializer = build_initializer("simple", None, 0.0).double()
    with torch.no_grad():
        initializer.beta.fill_(0.7)
    own = (initializer(features) * features).sum(1)
    torch.testing.assert_close(own, torch.full_like(own, 0.7))


def test_context_filters_answer_beta_on_their_own_pixel_and_gamma_on_the_mean():
    features = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    initializer = build_initializer("context", None, 0.0).double()
    with torch.no_grad():
        initializer.beta.fill_(0.9)
        initializer.gamma.fill_(0.2)
    filters, mean = initializer(features), features.mean((2, 3), keepdim=True)
    own, context = (filters * features).sum(1), (filters * mean).sum(1)
    torch.testing.assert_close(own, torch.full_like(own, 0.9))
    torch.testing.assert_close(context, torch.full_like(context, 0.2))


@pytest.mark.parametrize("kind", ["simple", "context"])
def test_flexible_versions_start_as_the_scalar_ones(kind):
    features = torch.randn(1, 5, 3, 4)
    torch.testing.assert_close(
        build_initializer(f"flexible-{kind}", 5, 1e-6)(features), build_initializer(kind, None, 1e-6)(features)
    )


@pytest.mark.parametrize("name", INITIALIZERS)
@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0, 300.0])
def test_degenerate_features_give_finite_filters_and_gradients(name, value):
    features = torch.full((1, 5, 3, 4), value, requires_grad=True)
    filters = build_initializer(name, 5, 1e-12)(features)
    assert filters.isfinite().all()
    if name != "zero":
        filters.sum().backward()
        assert features.grad is not None
        assert features.grad.isfinite().all()
