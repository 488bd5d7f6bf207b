import pytest
import torch

from gocor.modules.objective import QuadraticObjective, QueryObjective, ReferenceObjective, TargetMaps
from gocor.ops.descent.reference import residual_and_slope


def test_start_values_of_the_paper():
    """Values at distances 0, 1, 2 and beyond, as recorded from the published modules."""
    maps = ReferenceObjective().maps(torch.tensor([0.0, 1.0, 2.0, 4.5, 30.0]))
    torch.testing.assert_close(maps.target[:2], torch.tensor([0.99996, 0.60649]), atol=1e-5, rtol=0)
    assert maps.target[3] == maps.target[4] == 0
    torch.testing.assert_close(maps.weight, torch.ones(5))
    torch.testing.assert_close(maps.mask, torch.tensor([0.979, 0.955, 0.5, 0.019, 0.019]), atol=2e-3, rtol=0)


def test_one_hot_target():
    maps = ReferenceObjective(target_sigma=0).maps(torch.tensor([0.0, 0.5, 3.0]))
    assert maps.target.tolist() == [1, 0, 0]


def test_quadratic_objective_is_the_distance_to_delta():
    distance = torch.tensor([0.0, 1.0, 2.0])
    scores = torch.tensor([0.3, -0.5, 2.0])
    residual, slope = residual_and_slope(scores, QuadraticObjective().maps(distance).coefficients(), 0.0)
    torch.testing.assert_close(residual, scores - torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(slope, torch.ones(3))


def test_robust_function_weighs_negative_scores_by_v_minus():
    maps = TargetMaps(torch.zeros(3), torch.full((3,), 2.0), torch.full((3,), 0.25))
    residual, slope = residual_and_slope(torch.tensor([1.0, -1.0, 0.0]), maps.coefficients(), 0.0)
    assert residual.tolist() == [2.0, -0.5, 0.0]
    assert slope.tolist() == [2.0, 0.5, 1.25]


@pytest.mark.parametrize("eta", [0.0, 0.1, 1.0])
def test_slope_is_the_derivative_of_the_residual(eta):
    scores = torch.randn(200, dtype=torch.float64, requires_grad=True)
    maps = TargetMaps(*torch.rand(3, 200, dtype=torch.float64))
    residual, slope = residual_and_slope(scores, maps.coefficients(), eta)
    (derivative,) = torch.autograd.grad(residual.sum(), scores)
    torch.testing.assert_close(slope, derivative)


def test_smooth_function_approaches_the_robust_one():
    scores, maps = torch.linspace(-2, 2, 41, dtype=torch.float64), TargetMaps(*torch.rand(3, 41, dtype=torch.float64))
    sharp, _ = residual_and_slope(scores, maps.coefficients(), 0.0)
    smooth, _ = residual_and_slope(scores, maps.coefficients(), 1e-9)
    torch.testing.assert_close(smooth, sharp, atol=1e-8, rtol=0)


@pytest.mark.parametrize(("kernel", "inter", "out"), [(3, 16, 16), (1, 2, 3), (5, 3, 1)])
def test_query_objective_has_an_exact_adjoint(kernel, inter, out):
    operator = QueryObjective(kernel=kernel, inter=inter, out=out).double()
    volume = torch.randn(2, 3, 4, 5, 6, dtype=torch.float64)
    smoothed = operator(volume)
    assert smoothed.shape == (2, 5, 6, out, 3, 4)
    other = torch.randn_like(smoothed)
    torch.testing.assert_close((smoothed * other).sum(), (volume * operator.adjoint(other)).sum())


def test_query_objective_is_the_factorised_4d_convolution():
    """First kernel over the last two dimensions, second over the first two, zero padding."""
    operator = QueryObjective(inter=2, out=3).double()
    volume = torch.randn(1, 4, 5, 6, 7, dtype=torch.float64)
    full = torch.einsum("ickl,oimn->omnkl", operator.weight1, operator.weight2)  # (out, 3, 3, 3, 3) over (U, V)
    padded = torch.nn.functional.pad(volume[0], (1, 1, 1, 1, 1, 1, 1, 1))
    expected = torch.zeros(3, 4, 5, 6, 7, dtype=torch.float64)
    for m in range(3):
        for n in range(3):
            for k in range(3):
                for j in range(3):
                    shifted = padded[m : m + 4, n : n + 5, k : k + 6, j : j + 7]
                    expected += full[:, m, n, k, j].view(3, 1, 1, 1, 1) * shifted
    torch.testing.assert_close(operator(volume)[0].permute(2, 3, 4, 0, 1), expected)
