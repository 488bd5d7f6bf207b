"""Local GOCor's kernels in Gram space, and those of the query objective, against the specification."""

import copy

import pytest
import torch

from gocor import LocalGOCor
from gocor.modules.objective import QueryObjective
from gocor.ops.descent import local_gram_triton
from gocor.ops.descent.smoothing import QuerySmoothing
from tests.conftest import relative_error, results_of_flat_images
from tests.ops.kernels.common import DEVICE, INTERPRETED, kernels_everywhere, perturbed, poisoned_memory

# The interpreter is slow: gradients are checked on small windows there.
SMALL, OTHERS = (2, 20, 2, 3, 1), [(1, 30, 1, 2, 2)]
if not INTERPRETED:
    OTHERS += [(1, 7, 1, 1, 3), (2, 20, 9, 11, 4), (1, 12, 5, 6, 6), (1, 40, 9, 10, 8), (1, 150, 5, 6, 8)]
HELD = ["products", "features", "nothing"]  # what a program holds on chip


def hold(what: str, radius: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_gram_triton, "FEW_CHANNELS", 64 if what == "features" else 0)
    if what == "nothing":  # as with large windows and many channels, 16 of which are read at a time
        if INTERPRETED and radius > 1:
            pytest.skip("takes minutes in the interpreter")
        monkeypatch.setattr(local_gram_triton, "RESIDENT", 8)


def filters_and_gradients(module, reference, iters, grad, dtype=torch.float32, form="filters"):
    """Filters, the gradient of the reference, and all parameters' gradients as one vector: single ones may cancel."""
    module = copy.deepcopy(module).to(dtype)
    module.form = form
    leaf = reference.to(dtype).requires_grad_()
    filters = module.filters(leaf, iters)
    gradients = torch.autograd.grad(filters, [leaf, *module.parameters()], grad.to(dtype), allow_unused=True)
    rest = [torch.zeros_like(p) if g is None else g for p, g in zip(module.parameters(), gradients[1:], strict=True)]
    return filters.detach(), gradients[0], torch.cat([g.flatten() for g in rest])


@pytest.mark.parametrize(
    ("shape", "iters", "options"),
    [(shape, 2, {}) for shape in OTHERS]
    + [
        (SMALL, 0, {}),
        (SMALL, 3, {"eta": 0.1}),
        (SMALL, 3, {"scale_free_step": False}),
        (SMALL, 2, {"regularizer": "relative"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("held", HELD)
def test_filters_and_their_gradients(shape, iters, options, held, monkeypatch):
    *size, radius = shape
    hold(held, radius, monkeypatch)
    module, reference = perturbed(LocalGOCor(radius, **options)).to(DEVICE), torch.randn(size, device=DEVICE)
    if size[0] > 1:
        reference[1] *= 3  # so that relative regularisers of the samples differ
    grad = torch.rand(size, device=DEVICE)  # of one sign: none cancel
    exact, usual = (filters_and_gradients(module, reference, iters, grad, d) for d in (torch.float64, torch.float32))
    with kernels_everywhere(monkeypatch), poisoned_memory(monkeypatch):
        results = filters_and_gradients(module, reference, iters, grad, form="gram-kernels")
    for ours, plain, true in zip(results, usual, exact, strict=True):
        assert relative_error(ours, true) <= max(2 * relative_error(plain, true), 2e-5)


@pytest.mark.parametrize("held", ["products", "features"])
@torch.no_grad()
def test_filters_with_the_usual_radius(held, monkeypatch):
    hold(held, 4, monkeypatch)
    module, reference = perturbed(LocalGOCor(4)).to(DEVICE), torch.randn(1, 20, 2, 3, device=DEVICE)
    exact = copy.deepcopy(module).double().filters(reference.double())
    with kernels_everywhere(monkeypatch):
        assert relative_error(module.filters(reference), exact) < 1e-5


@pytest.mark.parametrize("value", [33.3] if INTERPRETED else [0.7, 33.3, 99.7, 100.0, 123.4, 3000.0])
@pytest.mark.parametrize("held", ["products", "features"])
def test_flat_images_have_sane_gradients(held, value, monkeypatch):
    """The first step reaches the optimum there, and what remains of the gradient is rounding error."""
    radius, size = (1, (3, 3)) if INTERPRETED else (4, (9, 10))
    hold(held, radius, monkeypatch)
    exact = results_of_flat_images(LocalGOCor(radius, form="filters").to(DEVICE).double(), value, size)
    with kernels_everywhere(monkeypatch):
        results = results_of_flat_images(LocalGOCor(radius, form="gram-kernels").to(DEVICE), value, size)
    for ours, true in zip(results, exact, strict=True):
        assert relative_error(ours, true) < 1e-3


RADIUS, FEATURES = (1, (1, 12, 3, 4)) if INTERPRETED else (3, (1, 12, 6, 9))


@pytest.fixture
def kernels(monkeypatch):
    with kernels_everywhere(monkeypatch):
        yield


def volume_and_gradients(module, reference, query):
    leaves = reference.clone().requires_grad_(), query.clone().requires_grad_()
    volume = module(*leaves)
    volume.square().sum().backward()
    return [volume.detach(), *(leaf.grad for leaf in (*leaves, *module.parameters()))]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("norm", [1e-8, 1e-7, 1e-5, 3e-5, 1e-4])
def test_gradients_of_flat_features_of_tiny_norm_are_finite(norm):
    features = torch.randn(1, 12, 1, 1).expand(FEATURES) + 1e-6 * torch.randn(FEATURES)
    reference = norm * torch.nn.functional.normalize(features, dim=1).to(DEVICE)
    module = LocalGOCor(RADIUS, regularizer="relative", form="gram-kernels").to(DEVICE)
    results = volume_and_gradients(module, reference, reference)
    assert all(result.isfinite().all() for result in results)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("options", [{}, {"initializer": "zero"}, {"regularizer": "relative"}], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_volume_and_gradients_of_the_module(options, layout):
    reference, query = (x.to(memory_format=layout) for x in torch.randn(2, *FEATURES, device=DEVICE).unbind())
    module = LocalGOCor(RADIUS, **options).to(DEVICE)
    assert module.selected_form(reference, query).name == "gram-kernels"
    plain = LocalGOCor(RADIUS, form="filters", **options).to(DEVICE)
    results = [volume_and_gradients(m, reference, query) for m in (plain, module)]
    for expected, ours in zip(*results, strict=True):
        assert relative_error(ours, expected) < 1e-4


@pytest.mark.usefixtures("kernels")
def test_features_of_sixteen_bits():
    reference, query = torch.randn(2, *FEATURES, device=DEVICE).half()
    modules = [LocalGOCor(RADIUS, form=form).to(DEVICE) for form in ("filters", "fused")]
    for theirs, mine in zip(*(volume_and_gradients(m, reference, query) for m in modules), strict=True):
        assert mine.dtype == theirs.dtype
        assert relative_error(mine, theirs) < 5e-3


@pytest.mark.usefixtures("kernels")
def test_derived_parameters_are_kept_until_a_parameter_changes(monkeypatch):
    module, features = LocalGOCor(RADIUS, form="gram-kernels").to(DEVICE), torch.randn(2, *FEATURES, device=DEVICE)
    with torch.no_grad():
        first = module(*features)
        kept = module._derived
        assert torch.equal(module(*features), first)
        assert module._derived is kept
        module.objective.target.mul_(0.5)
        second = module(*features)
        assert module._derived is not kept
        assert relative_error(second, first) > 1e-3
        assert relative_error(second, LocalGOCor.forward(module, *features)) < 1e-6


@pytest.mark.usefixtures("kernels")
def test_compiles_as_one_graph():
    reference, query = (x.requires_grad_() for x in torch.randn(2, *FEATURES, device=DEVICE).unbind())
    module = LocalGOCor(RADIUS).to(DEVICE)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(reference, query), module(reference, query))
    compiled(reference, query).sum().backward()
    assert reference.grad is not None


@pytest.mark.parametrize("sizes", [(3, 4, 2, 3), (1, 2, 8, 9), (1, 1, 1, 1)])
def test_smoothing_and_its_gradients(sizes, monkeypatch):
    objective = perturbed(QueryObjective(), 1.0).to(DEVICE)
    smoothing = QuerySmoothing(objective.weight1, objective.weight2, lambda x: x, lambda x: x)
    apart = torch.randn(2, 5, *sizes[1:], device=DEVICE)[:, : sizes[0]]  # samples with a gap between them
    apart.requires_grad_()
    grad, leaves = torch.randn(apart.shape, device=DEVICE), (apart, *objective.parameters())
    results = []
    for run in (False, True):
        with kernels_everywhere(monkeypatch, run=run), poisoned_memory(monkeypatch):
            out = smoothing.twice(apart)
            results.append([out.detach(), *torch.autograd.grad(out, leaves, grad)])
    for expected, ours in zip(*results, strict=True):
        assert relative_error(ours, expected) < (1e-5 if INTERPRETED else 2e-3)  # cuDNN's products have 11 bits


@pytest.mark.usefixtures("kernels")
def test_smoothing_of_an_empty_batch():
    objective = QueryObjective().to(DEVICE)
    smoothing = QuerySmoothing(objective.weight1, objective.weight2, lambda x: x, lambda x: x)
    out = smoothing.twice(torch.zeros(0, 2, 3, 4, 5, device=DEVICE, requires_grad=True))
    assert out.shape == (0, 2, 3, 4, 5)
    out.sum().backward()
    assert all((parameter.grad == 0).all() for parameter in objective.parameters())
