"""The hand-written backward pass of the fused iterations, against autograd of the readable ones."""

import pytest
import torch

from gocor import LocalGOCor
from gocor.modules.descent import steepest_descent
from gocor.modules.fused import descent_gradients


@pytest.mark.parametrize(
    "options", [{}, {"eta": 0.1}, {"scale_free_step": False}, {"reference_objective": "quadratic"}], ids=str
)
@pytest.mark.parametrize("iters", [0, 1, 4])
@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_gradients_equal_autograd(options, iters, scale, device):
    module = LocalGOCor(2, **options).to(device, torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    reference = scale * torch.randn(2, 6, 5, 7, dtype=torch.float64, device=device)
    problem = module._problem(reference, reference)
    leaves = [
        x.detach().clone().requires_grad_()
        for x in (reference, module.initializer(reference), *problem.maps, problem.regularization, problem.step_factor)
    ]
    maps = type(problem.maps)(*leaves[2:5])
    written = type(problem)(
        **{**vars(problem), "reference": leaves[0], "maps": maps, "regularization": leaves[5], "step_factor": leaves[6]}
    )
    out = steepest_descent(written, leaves[1], iters)
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, leaves, grad, allow_unused=True)
    with torch.no_grad():
        inputs = leaves[0], leaves[1], maps, leaves[5], leaves[6]
        ours = descent_gradients(grad, *inputs, module.radius, iters, problem.eta, problem.floor)
    for mine, theirs, leaf in zip(ours, expected, leaves, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(leaf) if theirs is None else theirs)
