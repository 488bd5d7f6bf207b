"""Checks of the Triton kernels, on a GPU or in Triton's interpreter; `test_local_triton.py` runs them."""

import pytest
import torch

from gocor import LocalGOCor
from gocor.modules import fused
from gocor.modules.descent import steepest_descent
from gocor.ops import local_reference, local_triton
from tests.conftest import relative_error

INTERPRETED = not torch.cuda.is_available()
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
SHAPES = [(2, 5, 7, 9, 4), (1, 20, 11, 13, 2), (1, 3, 1, 1, 4), (1, 16, 9, 12, 0), (1, 33, 5, 18, 3), (1, 4, 9, 10, 8)]


def poison(monkeypatch):
    """Make fresh memory NaN, so that an element that nothing wrote shows."""
    for name in ("new_empty",):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda self, *a, f=original, **k: f(self, *a, **k).fill_(float("nan")))
    original = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *a, f=original, **k: f(*a, **k).fill_(float("nan")))


@pytest.mark.parametrize("name", ["correlate", "adjoint_reference", "adjoint_query"])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_equal_the_specification(name, shape, monkeypatch):
    batch, channels, height, width, radius = shape
    rows = channels if name == "correlate" else (2 * radius + 1) ** 2
    first = torch.randn(batch, rows, height, width, device=DEVICE)
    features = torch.randn(batch, channels, height, width, device=DEVICE)
    exact = getattr(local_reference, name)(first.double(), features.double(), radius, 0.3)
    plain = getattr(local_reference, name)(first, features, radius, 0.3)
    poison(monkeypatch)
    ours = getattr(local_triton, name)(first, features, radius, 0.3)
    assert relative_error(ours, exact) <= max(2 * relative_error(plain, exact), 3e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_inputs(dtype):
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("the interpreter computes in numpy, which has no bfloat16")
    reference, query = torch.randn(2, 1, 20, 9, 10, device=DEVICE).to(dtype)
    exact = local_reference.correlate(reference.double(), query.double(), 2, 1.0)
    plain = local_reference.correlate(reference, query, 2, 1.0)
    ours = local_triton.correlate(reference, query, 2, 1.0)
    assert ours.dtype == dtype
    assert relative_error(ours, exact) <= 2 * relative_error(plain, exact)


def problem_of(module, reference):
    problem = module._problem(reference, reference)
    return problem, module.initializer(reference)


@pytest.mark.parametrize(
    "options", [{}, {"eta": 0.1}, {"scale_free_step": False}, {"reference_objective": "quadratic"}], ids=str
)
@pytest.mark.parametrize("shape", [(2, 20, 9, 11, 4), (1, 40, 5, 6, 2), (1, 7, 1, 1, 3)])
@pytest.mark.parametrize("iters", [0, 1, 3])
def test_fused_iterations_equal_the_readable_ones(options, shape, iters):
    *size, radius = shape
    module, reference = LocalGOCor(radius, **options).to(DEVICE), torch.randn(size, device=DEVICE)
    with torch.no_grad():
        problem, filters = problem_of(module, reference)
        plain = steepest_descent(problem, filters, iters)
        ours = fused.fused_descent(problem, filters, radius=radius, iters=iters)
        problem, filters = problem_of(module.double(), reference.double())
        exact = steepest_descent(problem, filters, iters)
    assert relative_error(ours, exact) <= max(2 * relative_error(plain, exact), 1e-6)


@pytest.fixture
def fuse_everywhere(monkeypatch):
    monkeypatch.setattr("gocor.modules.local_gocor.can_fuse", lambda problem, radius: problem.regularizer is None)


@pytest.mark.usefixtures("fuse_everywhere")
def test_the_module_uses_them_with_the_same_gradients():
    reference, query = torch.randn(2, 1, 12, 6, 9, device=DEVICE)
    results = []
    for form in ("filters", "auto"):
        module = LocalGOCor(3, form=form).to(DEVICE)
        leaves = reference.clone().requires_grad_(), query.clone().requires_grad_()
        volume = module(*leaves)
        volume.square().sum().backward()
        results.append([volume.detach(), *(leaf.grad for leaf in (*leaves, *module.parameters()))])
    for ours, expected in zip(*results[::-1], strict=True):
        assert relative_error(ours, expected) < 1e-4


@pytest.mark.usefixtures("fuse_everywhere")
def test_compiles_as_one_graph():
    reference, query = (x.requires_grad_() for x in torch.randn(2, 1, 12, 6, 9, device=DEVICE).unbind())
    module = LocalGOCor(2).to(DEVICE)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(reference, query), module(reference, query))
    compiled(reference, query).sum().backward()
    assert reference.grad is not None


@pytest.mark.parametrize("iters", [0, 3])
def test_an_unsupported_gpu_falls_back(monkeypatch, iters):
    module, reference = LocalGOCor(2).to(DEVICE), torch.randn(1, 12, 6, 9, device=DEVICE)
    monkeypatch.setattr(fused, "supported", lambda device: False)
    monkeypatch.delattr(local_triton, "descend")
    with torch.no_grad():
        problem, filters = problem_of(module, reference)
        ours = fused.fused_descent(problem, filters, radius=2, iters=iters)
        assert relative_error(ours, steepest_descent(problem, filters, iters)) < 1e-5


def test_a_gpu_with_too_little_memory_on_chip_falls_back(monkeypatch):
    module, reference = LocalGOCor(2).to(DEVICE), torch.randn(1, 12, 6, 9, device=DEVICE)

    def refuse(*arguments):
        raise local_triton.OutOfResources(300_000, 100_000, "shared memory")

    monkeypatch.setattr(local_triton, "descend", refuse)
    with torch.no_grad():
        problem, filters = problem_of(module, reference)
        ours = fused.fused_descent(problem, filters, radius=2, iters=3)
        assert relative_error(ours, steepest_descent(problem, filters, 3)) < 1e-5


def test_form_is_checked():
    with pytest.raises(ValueError, match="form must be one of"):
        LocalGOCor(form="gram")
    with pytest.raises(ValueError, match="the fused iteration has no query term"):
        LocalGOCor(form="fused", query_objective=True)
