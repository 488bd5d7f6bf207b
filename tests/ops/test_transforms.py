"""`torch.func` through the operators and the modules: the results of plain autograd and of plain loops."""

import pytest
import torch
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap
from torch.utils._pytree import tree_leaves

from gocor import GlobalGOCor, LocalGOCor, ops

POSITIONS = torch.rand(2, 2, 4, 5, generator=torch.Generator().manual_seed(1)) * 4


def seeded(module, **options):
    torch.manual_seed(0)
    return module(**options)


FUNCTIONS = {
    "local_correlation": lambda a, b: ops.local_correlation(a, b, 2),
    "global_correlation": ops.global_correlation,
    "lookup": lambda a, b: ops.lookup(a, ops.pool_pyramid(b, 2), POSITIONS[: a.shape[0]], 1),
    "warp": lambda a, b: ops.warp(a, b[:, :2]),
    "resize_flow": lambda a, b: ops.resize_flow(a[:, :2] + b[:, :2], (6, 7)),
    "compose_flows": lambda a, b: ops.compose_flows(a[:, :2], b[:, :2])[0],
    "invert_flow": lambda a, b: ops.invert_flow(a[:, :2] + b[:, :2])[0],
    "LocalGOCor": seeded(LocalGOCor, radius=2, iters=2),
    "LocalGOCor, both objectives": seeded(LocalGOCor, radius=1, iters=1, query_objective=True, bidirectional=True),
    "GlobalGOCor": seeded(GlobalGOCor, channels=3, iters=2),
    "GlobalGOCor, filters": seeded(GlobalGOCor, channels=3, iters=1, form="filters"),
    "GlobalGOCor, reference objective": seeded(GlobalGOCor, channels=3, iters=2, query_objective=False),
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
NO_FORWARD_MODE = "warp", "compose_flows", "lookup"


@pytest.fixture
def maps():
    """References and queries, three times `(2, 3, 4, 5)`."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 2, 3, 4, 5, generator=generator).unbind()


@pytest.fixture
def no_loops():
    """An operator without a rule for `vmap` is an error in place of a loop."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


def gradients(function, reference, query):
    leaves = [x.clone().requires_grad_() for x in (reference, query)]
    return torch.autograd.grad(function(*leaves).square().sum(), leaves)


def same(found, expected):
    """Equal but for rounding, which is as large in small values as in the largest of their map."""
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * max(1, other.abs().max().item()))


@every_function
def test_grad(function, maps):
    reference, query = maps[0][0], maps[1][0]
    found = grad(lambda a, b: function(a, b).square().sum(), argnums=(0, 1))(reference, query)
    same(found, gradients(function, reference, query))


@every_function
def test_vmap(function, maps, no_loops):
    references, queries = maps
    loop = torch.stack([function(a, b) for a, b in zip(references, queries, strict=True)])
    same(vmap(function)(references, queries), loop)
    with torch.no_grad():
        same(vmap(function)(references, queries), loop)
    shared = torch.stack([function(a, queries[0]) for a in references])
    same(vmap(function, in_dims=(2, None))(references.movedim(0, 2), queries[0]), shared)


@every_function
def test_vmap_of_grad_and_grad_of_vmap(function, maps, no_loops):
    references, queries = maps
    loop = torch.stack([gradients(function, a, b)[0] for a, b in zip(references, queries, strict=True)])
    same(vmap(grad(lambda a, b: function(a, b).square().sum()))(references, queries), loop)
    same(grad(lambda a: vmap(function)(a, queries).square().sum())(references), loop)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians(name, maps):
    reference, query = maps[0][0, :1], maps[1][0, :1]

    def part(x):
        return FUNCTIONS[name](x, query)[:, :2, :2, :2]

    expected = torch.autograd.functional.jacobian(part, reference)
    same(jacrev(part)(reference), expected)
    if name in NO_FORWARD_MODE:  # grid_sample has no forward-mode derivative, nor has a lookup
        with pytest.raises((NotImplementedError, ValueError), match=r"not support|no forward-mode derivative"):
            jacfwd(part)(reference)
    else:
        same(jacfwd(part)(reference), expected)


def test_dual_numbers(maps):
    reference, query = maps[0][0], maps[1][0]
    tangent = torch.randn_like(reference)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(reference, tangent)
        found = torch.autograd.forward_ad.unpack_dual(ops.local_correlation(dual, query, 2)).tangent
    same(found, ops.local_correlation(tangent, query, 2))
    same(jvp(lambda a: ops.local_correlation(a, query, 2), (reference,), (tangent,))[1], found)


def test_second_derivatives_of_a_lookup_are_refused(maps):
    query = maps[1][0]

    def slope(filters):
        return grad(lambda x: FUNCTIONS["lookup"](x, query).pow(3).sum())(filters).sum()

    with pytest.raises(ValueError, match="differentiable once"):
        grad(slope)(maps[0][0])


def test_gradients_of_parameters_by_sample(maps):
    module, (references, queries) = seeded(LocalGOCor, radius=2, iters=2), maps
    parameters = dict(module.named_parameters())

    def loss(values, reference, query):
        return functional_call(module, values, (reference, query)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, references, queries)
    for index in range(len(references)):
        expected = torch.autograd.grad(loss(parameters, references[index], queries[index]), parameters.values())
        for name, value in zip(parameters, expected, strict=True):
            torch.testing.assert_close(found[name][index], value, rtol=1e-3, atol=1e-4)
