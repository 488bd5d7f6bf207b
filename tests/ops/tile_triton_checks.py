"""Checks of local GOCor's kernel on matrix units; `test_tile_triton.py` runs them."""

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

from gocor import LocalGOCor
from gocor.ops import kernels
from gocor.ops.descent import local_tile_triton as tile_triton
from gocor.ops.descent.tiled_inference import inference_volume, spread
from tests.conftest import relative_error
from tests.ops.descent.test_gram_reference import parameters_and_options, perturbed
from tests.ops.triton_checks import DEVICE, INTERPRETED, poison

SHAPES = [(1, 8, 5, 7), (2, 20, 5, 11), (1, 3, 1, 1)]
if not INTERPRETED:
    SHAPES += [(2, 128, 13, 30), (1, 64, 48, 41), (3, 33, 9, 16)]

if INTERPRETED:  # which multiplies bfloat16 numbers as the integers that it keeps them in, and truncates to them
    create_dot, convert_float = interpreter.InterpreterBuilder.create_dot, interpreter._convert_float

    def create_dot_of_floats(self, a, b, *arguments):
        a, b = (
            interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
            if x.dtype.scalar == tl.bfloat16
            else x
            for x in (a, b)
        )
        return create_dot(self, a, b, *arguments)

    def convert_float_rounded(data, source, target, rounding):
        if (source, target) != (tl.float32, tl.bfloat16):
            return convert_float(data, source, target, rounding)
        return torch.tensor(data).bfloat16().view(torch.int16).numpy().view(np.uint16)

    interpreter.InterpreterBuilder.create_dot = create_dot_of_floats
    interpreter._convert_float = convert_float_rounded


def volume(module, reference, query, iters):
    parameters, options = parameters_and_options(module, reference.shape[1], iters, torch.float32, DEVICE)
    return inference_volume(reference, query, (*parameters, spread(parameters[1:4], module.radius)), options)


def volumes(module, reference, query, iters, monkeypatch):
    """Ours, that of plain operators in float32 rounded as ours is, and the exact one."""
    exact = module.double()(reference.double(), query.double(), iters)
    plain = module.float()(reference.float(), query.float(), iters).to(reference.dtype)
    poison(monkeypatch)
    return volume(module, reference, query, iters), plain, exact


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("radius", "iters", "options"),
    [
        (4, 3, {}),
        (3, 1, {"eta": 0.1}),
        (2, 0, {}),
        (1, 3, {"initializer": "zero"}),
        (4, 2, {"scale_free_step": False, "eta": 0.1}),
    ],
    ids=str,
)
@torch.no_grad()
def test_equals_plain_operators(shape, radius, iters, options, monkeypatch):
    module = perturbed(LocalGOCor(radius, form="filters", **options)).to(DEVICE)
    reference, query = torch.randn(2, *shape, device=DEVICE)
    ours, plain, exact = volumes(module, reference, query, iters, monkeypatch)
    assert ours.dtype == reference.dtype
    assert relative_error(ours, exact) <= max(2 * relative_error(plain, exact), 1e-6)


@torch.no_grad()
def test_small_features_and_none(monkeypatch):
    module = perturbed(LocalGOCor(2, form="filters", scale_free_step=False)).to(DEVICE)
    reference, query = torch.randn(2, 1, 8, 4, 16, device=DEVICE)
    reference = 0.02 * reference
    reference[:, :, :, 4:] = 0
    ours, plain, exact = volumes(module, reference, query, 3, monkeypatch)
    assert relative_error(ours, exact) <= max(2 * relative_error(plain, exact), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("scale", "layout"), [(1e-3, torch.contiguous_format), (1.0, torch.channels_last), (100.0, torch.contiguous_format)]
)
@torch.no_grad()
def test_features_of_sixteen_bits(dtype, scale, layout, monkeypatch):
    reference, query = scale * torch.randn(2, 1, 20, 6, 9, device=DEVICE)
    reference, query = reference.to(dtype).to(memory_format=layout), query.to(dtype)
    module = perturbed(LocalGOCor(4, form="filters", eta=0.1)).to(DEVICE)  # no kink that rounding could cross
    ours, plain, exact = volumes(module, reference, query, 3, monkeypatch)
    assert ours.dtype == dtype
    assert relative_error(ours, exact) <= 2 * relative_error(plain, exact)


@pytest.fixture
def tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@torch.no_grad()
def test_in_sixteen_bits_where_torch_may_do_so(layout, monkeypatch):
    reference, query = torch.randn(2, 1, 20, 6, 9, device=DEVICE)
    module = perturbed(LocalGOCor(4, form="filters", eta=0.1)).to(DEVICE)
    ours, plain, exact = volumes(module, reference.to(memory_format=layout), query, 3, monkeypatch)
    assert 1e-6 < relative_error(ours, exact) < max(1e-4, relative_error(plain, exact))  # by coefficients in TF32


@pytest.mark.parametrize("channels", [100, *([] if INTERPRETED else [128, 256])])
@torch.no_grad()
def test_many_channels(channels, monkeypatch):
    reference, query = torch.randn(2, 1, channels, 5, 9, device=DEVICE).bfloat16()
    monkeypatch.setattr(tile_triton, "pays", lambda features: True)
    ours, plain, exact = volumes(perturbed(LocalGOCor(4, eta=0.1)).to(DEVICE), reference, query, 2, monkeypatch)
    assert relative_error(ours, exact) <= 2 * relative_error(plain, exact)


def test_where_it_pays():
    def pays(dtype, channels, side):
        return tile_triton.pays(torch.empty(1, channels, side, side, dtype=dtype, device=DEVICE))

    assert pays(torch.float32, 64, 8)
    assert not pays(torch.float32, 65, 64)
    assert pays(torch.float16, 128, 8)
    assert pays(torch.bfloat16, 128, 8)
    assert pays(torch.bfloat16, 256, 64)
    assert not pays(torch.bfloat16, 256, 32)


@pytest.fixture
def calls(monkeypatch):
    """How often the kernel was asked for; elsewhere than on a GPU it has to be told that it can run."""
    asked = []

    def recorded(*arguments, f=tile_triton.volume):
        asked.append(arguments)
        return f(*arguments)

    monkeypatch.setattr(tile_triton, "volume", recorded)
    monkeypatch.setattr("gocor.modules.local_gocor.can_descend", lambda features, radius: True)
    monkeypatch.setattr("gocor.modules.local_gocor.can_tile", lambda features, radius: radius <= 4)
    return asked


def test_the_module_uses_it_without_gradients(calls):
    module, features = LocalGOCor(1).to(DEVICE), torch.randn(2, 1, 8, 3, 4, device=DEVICE)
    expected = module(*features)
    assert expected.requires_grad
    assert not calls
    with torch.no_grad():
        ours, again = module(*features), module(*features)
        assert len(calls) == 2
        assert calls[0][2][1] is calls[1][2][1]  # tables are kept
        module.objective.target.mul_(0.5)
        assert relative_error(module(*features), ours) > 1e-3
        LocalGOCor(5).to(DEVICE)(*features)
    assert len(calls) == 3
    assert relative_error(ours, expected) < 1e-5
    assert torch.equal(ours, again)
    module.requires_grad_(False)
    module(*features)
    assert len(calls) == 4
    module(features[0], features[1].requires_grad_()).sum().backward()
    assert len(calls) == 4


def test_other_devices_use_other_kernels(calls, monkeypatch):
    monkeypatch.setattr("gocor.ops.descent.tiled_inference.supported", lambda device: False)
    module, features = LocalGOCor(1).to(DEVICE), torch.randn(2, 1, 8, 3, 4, device=DEVICE)
    with torch.no_grad():
        assert relative_error(module(*features), LocalGOCor(1, form="filters").to(DEVICE)(*features)) < 1e-5
    assert not calls


def test_what_it_takes(monkeypatch):
    monkeypatch.setattr(kernels, "can_descend", lambda features, radius: True)
    taken = [
        (dtype, channels, radius)
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        for channels in (128, 256, 257)
        for radius in (4, 5)
        if kernels.can_tile(torch.empty(1, channels, 2, 2, dtype=dtype, device=DEVICE), radius)
    ]
    assert taken == [
        (torch.float32, 128, 4),
        (torch.float16, 128, 4),
        (torch.bfloat16, 128, 4),
        (torch.bfloat16, 256, 4),
    ]


@torch.no_grad()
def test_compiles_as_one_graph(calls):
    module, features = LocalGOCor(1).to(DEVICE), torch.randn(2, 1, 8, 3, 4, device=DEVICE)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*features), module(*features))
    assert len(calls) == 2
