"""Local GOCor's kernel on tensor cores against plain operators."""

import copy

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

from gocor import LocalGOCor
from gocor.ops import select
from gocor.ops.descent import local_tile_triton
from tests.conftest import relative_error
from tests.ops.kernels.common import DEVICE, INTERPRETED, kernels_everywhere, perturbed, poisoned_memory

SHAPES = [(1, 8, 5, 7), (2, 20, 5, 11), (1, 3, 1, 1)]
if not INTERPRETED:
    SHAPES += [(2, 128, 13, 30), (1, 64, 48, 41), (3, 33, 9, 16)]

if INTERPRETED:  # it multiplies bfloat16 numbers as the integers that it stores them in, and truncates to them
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


def volumes(module, reference, query, iters, monkeypatch):
    """Our volume, that of plain operators in float32 rounded as ours is, and the exact one."""
    module.form = "filters"
    exact = copy.deepcopy(module).double()(reference.double(), query.double(), iters)
    plain = module(reference.float(), query.float(), iters).to(reference.dtype)
    module.form = "tensor-cores"
    with kernels_everywhere(monkeypatch), poisoned_memory(monkeypatch):
        return module(reference, query, iters), plain, exact


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("radius", "iters", "options"),
    [
        (4, 3, {}),
        (3, 1, {"eta": 0.1}),
        (2, 0, {}),
        (1, 3, {"initializer": "zero"}),
        (4, 2, {"scale_free_step": False, "eta": 0.1}),
        (2, 2, {"regularizer": "relative"}),
    ],
    ids=str,
)
@torch.no_grad()
def test_equals_plain_operators(shape, radius, iters, options, monkeypatch):
    module = perturbed(LocalGOCor(radius, **options)).to(DEVICE)
    reference, query = torch.randn(2, *shape, device=DEVICE)
    ours, plain, exact = volumes(module, reference, query, iters, monkeypatch)
    assert ours.dtype == reference.dtype
    assert relative_error(ours, exact) <= max(2 * relative_error(plain, exact), 1e-6)


@torch.no_grad()
def test_small_features_and_none(monkeypatch):
    module = perturbed(LocalGOCor(2, scale_free_step=False)).to(DEVICE)
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
    module = perturbed(LocalGOCor(4, eta=0.1)).to(DEVICE)  # no kink that rounding could cross
    ours, plain, exact = volumes(module, reference, query, 3, monkeypatch)
    assert ours.dtype == dtype
    assert relative_error(ours, exact) <= 2 * relative_error(plain, exact)


@pytest.mark.parametrize("channels", [100, *([] if INTERPRETED else [128, 256])])
@torch.no_grad()
def test_many_channels(channels, monkeypatch):
    reference, query = torch.randn(2, 1, channels, 5, 9, device=DEVICE).bfloat16()
    ours, plain, exact = volumes(perturbed(LocalGOCor(4, eta=0.1)).to(DEVICE), reference, query, 2, monkeypatch)
    assert relative_error(ours, exact) <= 2 * relative_error(plain, exact)


def test_where_it_is_faster():
    def faster(dtype, channels, side):
        return select.tensor_cores_are_faster(torch.empty(1, channels, side, side, dtype=dtype, device=DEVICE))

    assert faster(torch.float32, 64, 8)
    assert not faster(torch.float32, 65, 64)
    assert faster(torch.float16, 128, 8)
    assert faster(torch.bfloat16, 128, 8)
    assert faster(torch.bfloat16, 256, 64)
    assert not faster(torch.bfloat16, 256, 32)


@pytest.fixture
def calls(monkeypatch):
    """Arguments of every call of the kernel."""
    asked = []
    volume = local_tile_triton.volume
    monkeypatch.setattr(local_tile_triton, "volume", lambda *a: asked.append(a) or volume(*a))
    with kernels_everywhere(monkeypatch):
        yield asked


def test_the_module_uses_it_without_gradients(calls):
    module, features = LocalGOCor(1).to(DEVICE), torch.randn(2, 1, 8, 3, 4, device=DEVICE)
    expected = module(*features)
    assert expected.requires_grad
    assert not calls
    with torch.no_grad():
        ours, again = module(*features), module(*features)
        assert len(calls) == 2
        assert calls[0][2] is calls[1][2]  # the table is kept
        module.objective.target.mul_(0.5)
        assert relative_error(module(*features), ours) > 1e-3
        LocalGOCor(5).to(DEVICE)(*features)  # beyond its radius
    assert len(calls) == 3
    assert relative_error(ours, expected) < 1e-5
    assert torch.equal(ours, again)
    module.requires_grad_(False)
    module(*features)
    assert len(calls) == 4
    module(features[0], features[1].requires_grad_()).sum().backward()
    assert len(calls) == 4


@torch.no_grad()
def test_compiles_as_one_graph(calls):
    module, features = LocalGOCor(1).to(DEVICE), torch.randn(2, 1, 8, 3, 4, device=DEVICE)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*features), module(*features))
    assert len(calls) == 2
