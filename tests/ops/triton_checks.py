"""Checks of the Triton kernels, on a GPU or in Triton's interpreter; `test_local_triton.py` runs them."""

import pytest
import torch
from triton.runtime import interpreter

from gocor import LocalGOCor
from gocor.modules.objective import QueryRegularizer
from gocor.ops.correlation import reference as local_reference
from gocor.ops.correlation import triton as local_triton
from gocor.ops.descent import fused, gram_reference, smoothing
from gocor.ops.descent import local_gram_triton as gram_triton
from tests.conftest import relative_error
from tests.ops.descent.test_gram_reference import parameters_and_options, perturbed

INTERPRETED = not torch.cuda.is_available()
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
SHAPES = [(2, 5, 7, 9, 4), (1, 20, 11, 13, 2), (1, 3, 1, 1, 4), (1, 16, 9, 12, 0), (1, 33, 5, 18, 3), (1, 4, 9, 10, 8)]

if INTERPRETED:  # which takes bounds of loops by int(array of one element): numpy no longer allows that
    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor_and_index


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


@pytest.mark.parametrize("side", ["reference", "query", "both"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_operands_of_different_dtype_and_layout(side, layout):
    volume = torch.randn(2, 25, 9, 10, device=DEVICE)
    features = torch.randn(2, 20, 9, 10, device=DEVICE).half().to(memory_format=layout)
    sides = ("reference", "query") if side == "both" else (side,)
    exact = sum(
        getattr(local_reference, f"adjoint_{name}")(volume.double(), features.double(), 2, 1.0) for name in sides
    )
    ours = local_triton.adjoint(volume, features, 2, 1.0, side, dtype=torch.float32)
    assert ours.is_contiguous(memory_format=layout)
    assert relative_error(ours, exact) < (1e-6 if INTERPRETED else 1e-3)
    exact = local_reference.correlate(exact, features.double(), 2, 1.0)
    ours = local_triton.correlate(ours, features, 2, 1.0, dtype=torch.float32)
    assert relative_error(ours, exact) < (1e-6 if INTERPRETED else 1e-3)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_autocorrelation(layout):
    features = torch.randn(1, 20, 9, 5, device=DEVICE).to(memory_format=layout)
    exact = local_reference.correlate(features.double(), features.double(), 6, 1.0).permute(0, 2, 3, 1)
    assert relative_error(local_triton.autocorrelate(features, 6), exact) < 3e-7


# The interpreter is slow: there, gradients are for small windows.
SMALL, OTHERS = (2, 20, 2, 3, 1), [(1, 30, 1, 2, 2)]
if not INTERPRETED:
    OTHERS += [(1, 7, 1, 1, 3), (2, 20, 9, 11, 4), (1, 12, 5, 6, 6), (1, 40, 9, 10, 8), (1, 150, 5, 6, 8)]


@pytest.mark.parametrize(
    ("shape", "iters", "options"),
    [(shape, 2, {}) for shape in OTHERS]
    + [(SMALL, 0, {}), (SMALL, 3, {"eta": 0.1}), (SMALL, 3, {"scale_free_step": False})],
    ids=str,
)
@pytest.mark.parametrize("held", ["products", "features", "nothing"])
@torch.no_grad()
def test_iterations_and_their_gradients(shape, iters, options, held, monkeypatch):
    *size, radius = shape
    monkeypatch.setattr(gram_triton, "FEW_CHANNELS", 64 if held == "features" else 0)
    if held == "nothing":  # as with large windows and many channels, 16 of them at a time
        if INTERPRETED and radius > 1:
            pytest.skip("takes minutes in the interpreter")
        monkeypatch.setattr(gram_triton, "RESIDENT", 8)
    module, features = perturbed(LocalGOCor(radius, **options)).to(DEVICE), torch.randn(size, device=DEVICE)
    grad = torch.rand(size[0], (2 * radius + 1) ** 2, *size[2:], device=DEVICE)  # of one sign: none cancel

    def plain(dtype):
        f = features.to(dtype)
        gram = local_reference.correlate(f, f, 2 * radius, 1.0).permute(0, 2, 3, 1).contiguous()
        arguments = gram, *parameters_and_options(module, size[1], iters, dtype, DEVICE)
        return gram_reference.descend(*arguments), *gram_reference.descend_gradients(grad.to(dtype), *arguments)

    expected, usual = plain(torch.float64), plain(torch.float32)
    arguments = features, *parameters_and_options(module, size[1], iters, torch.float32, DEVICE)
    poison(monkeypatch)
    results = gram_triton.descend(*arguments), *gram_triton.descend_gradients(grad, *arguments)
    # The result, the gradients of the products, and those of the parameters together: single ones may cancel.
    grouped = zip(
        *([x[0], x[1], torch.cat([g.flatten() for g in x[2:]])] for x in (results, usual, expected)), strict=True
    )
    for ours, theirs, true in grouped:
        assert relative_error(ours, true) <= max(2 * relative_error(theirs, true), 1e-5)


@pytest.mark.parametrize("held", ["products", "features"])
@torch.no_grad()
def test_iterations_with_the_usual_radius(held, monkeypatch):
    monkeypatch.setattr(gram_triton, "FEW_CHANNELS", 64 if held == "features" else 0)
    module, features = perturbed(LocalGOCor(4)).to(DEVICE), torch.randn(1, 20, 2, 3, device=DEVICE)
    exact = local_reference.correlate(features.double(), features.double(), 8, 1.0).permute(0, 2, 3, 1)
    expected = gram_reference.descend(exact, *parameters_and_options(module, 20, 3, torch.float64, DEVICE))
    ours = gram_triton.descend(features, *parameters_and_options(module, 20, 3, torch.float32, DEVICE))
    assert relative_error(ours, expected) < 1e-5


@pytest.mark.parametrize("value", [33.3] if INTERPRETED else [0.7, 33.3, 99.7, 100.0, 123.4, 3000.0])
@pytest.mark.parametrize("held", ["products", "features"])
@torch.no_grad()
def test_a_flat_region_has_sane_gradients(held, value, monkeypatch):
    radius, size = (1, (3, 3)) if INTERPRETED else (4, (9, 10))
    monkeypatch.setattr(gram_triton, "FEW_CHANNELS", 64 if held == "features" else 0)
    module, features = LocalGOCor(radius).to(DEVICE), torch.full((1, 8, *size), value, device=DEVICE)
    grad = torch.ones(1, (2 * radius + 1) ** 2, *size, device=DEVICE)

    def plain(dtype):
        f = features.to(dtype)
        gram = local_reference.correlate(f, f, 2 * radius, 1.0).permute(0, 2, 3, 1).contiguous()
        arguments = gram, *parameters_and_options(module, 8, 3, dtype, DEVICE)
        return gram_reference.descend_gradients(grad.to(dtype), *arguments)

    arguments = parameters_and_options(module, 8, 3, torch.float32, DEVICE)
    ours, true = gram_triton.descend_gradients(grad, features, *arguments), plain(torch.float64)
    assert relative_error(ours.gram, true.gram) < 1e-3
    assert relative_error(torch.stack([*ours[5:]]), torch.stack([*true[5:]])) < 1e-3


RADIUS, FEATURES = (1, (1, 12, 3, 4)) if INTERPRETED else (3, (1, 12, 6, 9))


@pytest.fixture
def fuse_everywhere(monkeypatch):
    monkeypatch.setattr("gocor.modules.local_gocor.can_descend", lambda features, radius: True)


def volume_and_gradients(module, reference, query):
    leaves = reference.clone().requires_grad_(), query.clone().requires_grad_()
    volume = module(*leaves)
    volume.square().sum().backward()
    return [volume.detach(), *(leaf.grad for leaf in (*leaves, *module.parameters()))]


@pytest.mark.usefixtures("fuse_everywhere")
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("options", [{}, {"initializer": "zero"}], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_module_uses_them_with_the_same_gradients(kernels, options, layout, monkeypatch):
    monkeypatch.setattr(fused, "supported", lambda device: kernels)  # an old GPU falls back to plain operators
    reference, query = (x.to(memory_format=layout) for x in torch.randn(2, *FEATURES, device=DEVICE).unbind())
    results = [
        volume_and_gradients(LocalGOCor(RADIUS, form=form, **options).to(DEVICE), reference, query)
        for form in ("filters", "auto")
    ]
    for expected, ours in zip(*results, strict=True):
        assert relative_error(ours, expected) < 1e-4


@pytest.mark.usefixtures("fuse_everywhere")
def test_features_of_sixteen_bits():
    reference, query = torch.randn(2, *FEATURES, device=DEVICE).half()
    module = LocalGOCor(RADIUS, form="filters").to(DEVICE)
    expected = volume_and_gradients(module, reference, query)
    module.zero_grad()
    module.form = "fused"
    ours = volume_and_gradients(module, reference, query)
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert relative_error(mine, theirs) < 5e-3


@pytest.mark.usefixtures("fuse_everywhere")
def test_parameters_are_kept_until_they_change():
    module, features = LocalGOCor(RADIUS).to(DEVICE), torch.randn(2, *FEATURES, device=DEVICE)
    with torch.no_grad():
        first = module(*features)
        kept = module._kept
        assert torch.equal(module(*features), first)
        assert module._kept is kept
        module.objective.target.mul_(0.5)
        second = module(*features)
        assert module._kept is not kept
        assert relative_error(second, LocalGOCor.forward(module, *features)) < 1e-6
        assert relative_error(second, first) > 1e-3


@pytest.mark.usefixtures("fuse_everywhere")
def test_parameters_made_while_a_graph_is_recorded_are_not_kept(monkeypatch):
    monkeypatch.setattr("gocor.modules.local_gocor.recording", lambda device: True)
    module = LocalGOCor(RADIUS).to(DEVICE)
    with torch.no_grad():
        module(*torch.randn(2, *FEATURES, device=DEVICE))
    assert module._kept_state is None


@pytest.mark.usefixtures("fuse_everywhere")
def test_compiles_as_one_graph():
    reference, query = (x.requires_grad_() for x in torch.randn(2, *FEATURES, device=DEVICE).unbind())
    module = LocalGOCor(RADIUS).to(DEVICE)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(reference, query), module(reference, query))
    compiled(reference, query).sum().backward()
    assert reference.grad is not None


@pytest.mark.parametrize("sizes", [(3, 4, 2, 3), (1, 2, 8, 9), (1, 1, 1, 1)])
def test_smoothing_and_its_gradients(sizes, monkeypatch):
    regularizer = QueryRegularizer().to(DEVICE)
    with torch.no_grad():
        for parameter in regularizer.parameters():
            parameter.normal_()
    apart = torch.randn(2, 5, *sizes[1:], device=DEVICE)[:, : sizes[0]]  # samples that do not follow each other
    apart.requires_grad_()
    grad, leaves = torch.randn(apart.shape, device=DEVICE), (apart, *regularizer.parameters())
    results = []
    for kernels in (False, True):
        monkeypatch.setattr(smoothing, "can_smooth", lambda *_, use=kernels: use)
        if kernels:
            poison(monkeypatch)
        out = smoothing.smooth_twice(regularizer, apart)
        results.append([out.detach(), *torch.autograd.grad(out, leaves, grad)])
    for expected, ours in zip(*results, strict=True):
        assert relative_error(ours, expected) < (1e-5 if INTERPRETED else 2e-3)  # cuDNN's products have 11 bits


def test_smoothing_of_an_empty_batch(monkeypatch):
    monkeypatch.setattr(smoothing, "can_smooth", lambda *_: True)
    regularizer = QueryRegularizer().to(DEVICE)
    out = smoothing.smooth_twice(regularizer, torch.zeros(0, 2, 3, 4, 5, device=DEVICE, requires_grad=True))
    assert out.shape == (0, 2, 3, 4, 5)
    out.sum().backward()
    assert all((parameter.grad == 0).all() for parameter in regularizer.parameters())


def test_form_is_checked():
    with pytest.raises(ValueError, match="form must be one of"):
        LocalGOCor(form="gram")
    with pytest.raises(ValueError, match="the fused iteration has no query term"):
        LocalGOCor(form="fused", query_objective=True)
    with pytest.raises(ValueError, match="starts from 'simple' or 'zero' filters"):
        LocalGOCor(form="fused", initializer="context")
