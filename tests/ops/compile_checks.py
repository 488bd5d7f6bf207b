"""Compiles every kernel for a GPU without having one; `test_compiled_kernels.py` runs this where there is none.

The interpreter takes much that the compiler refuses. Launches are made as always, of tensors on the CPU, and end when
the kernel is compiled, so results are not looked at.
"""

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from gocor import GlobalGOCor, LocalGOCor
from gocor.modules.objective import QueryRegularizer
from gocor.ops.correlation import triton as local_triton
from gocor.ops.descent import local_gram_triton as gram_triton
from gocor.ops.descent import smoothing
from tests.ops.descent.test_gram_reference import parameters_and_options
from tests.ops.tile_triton_checks import volume

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


class Compiler:
    """Stands for the driver of a GPU that is not there."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Names of the kernels that were compiled."""
    names = []

    def compile_only(self, *arguments, grid, warmup, f=JITFunction.run, **options):
        names.append(self.__name__)
        assert f(self, *arguments, grid=grid, warmup=True, **options).asm["cubin"]

    driver.set_active(Compiler())
    monkeypatch.setattr(JITFunction, "run", compile_only)
    return names


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_local_correlation(dtype, layout, compiled):
    radius = 4
    features = torch.zeros(1, 33, 6, 9, dtype=dtype).to(memory_format=layout)
    grad = torch.zeros(1, (2 * radius + 1) ** 2, 6, 9)
    local_triton.correlate(features, features, radius, 1.0)
    local_triton.autocorrelate(features, radius)
    local_triton.adjoint_reference(grad, features, radius, 1.0)
    local_triton.adjoint_query(grad, features, radius, 1.0)
    assert compiled == ["_correlate_kernel"] * 2 + ["_adjoint_kernel"] * 2


@pytest.mark.parametrize(
    ("dtype", "channels", "radius", "eta"),
    [
        *((dtype, 32, 4, 0.0) for dtype in DTYPES),  # features on chip
        *((dtype, 200, 4, 0.0) for dtype in DTYPES),  # their products
        (torch.bfloat16, 32, 8, 0.1),
        (torch.float32, 200, 8, 0.1),  # neither
    ],
)
@torch.no_grad()
def test_local_iterations(dtype, channels, radius, eta, compiled):
    features = torch.zeros(1, channels, 6, 9, dtype=dtype)
    arguments = parameters_and_options(LocalGOCor(radius, eta=eta), channels, 3, torch.float32, torch.device("cpu"))
    gram_triton.descend(features, *arguments)
    gram_triton.descend_gradients(torch.zeros(1, (2 * radius + 1) ** 2, 6, 9), features, *arguments)
    assert {"_descend_kernel", "_descend_backward_kernel", "_gather_kernel"} <= {*compiled}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_local_volume(dtype, layout, compiled):
    features = torch.zeros(1, 32, 6, 9, dtype=dtype).to(memory_format=layout)
    volume(LocalGOCor(4), features, features, 3)
    assert compiled[-1] == "_volume_kernel"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("query_objective", [True, False])
@pytest.mark.parametrize("initializer", ["simple", "flexible-context"])
@torch.no_grad()
def test_global_volume(dtype, query_objective, initializer, compiled, monkeypatch):
    monkeypatch.setattr("gocor.modules.global_gocor.can_descend_globally", lambda *_: True)
    features = torch.zeros(1, 32, 6, 9, dtype=dtype)
    module = GlobalGOCor(32, initializer=initializer, query_objective=query_objective, form="gram")
    module(features, features)
    assert {"_start_kernel", "_sums_kernel", "_update_kernel"} <= {*compiled}


def test_smoothing(compiled, monkeypatch):
    monkeypatch.setattr(smoothing, "can_smooth", lambda *_: True)
    scores = torch.zeros(1, 5, 6, 7, 8, requires_grad=True)
    smoothing.smooth_twice(QueryRegularizer(), scores).sum().backward()
    assert compiled
