"""Compiles every kernel for a GPU without having one.

The interpreter accepts much that the compiler refuses. Kernels are launched as always, with tensors on the CPU, and the
launch ends when the kernel is compiled, so results are not looked at.
"""

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from gocor import GlobalGOCor, LocalGOCor
from gocor.modules.objective import QueryObjective
from gocor.ops import lookup, pool_pyramid, select
from gocor.ops.correlation import triton as kernels
from gocor.ops.descent.smoothing import QuerySmoothing

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
    monkeypatch.setattr(select, "kernels_run_on", lambda device: True)

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
    kernels.correlate(features, features, radius, 1.0)
    kernels.autocorrelate(features, radius)
    kernels.adjoint_reference(grad, features, radius, 1.0)
    kernels.adjoint_query(grad, features, radius, 1.0)
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
def test_local_filters(dtype, channels, radius, eta, compiled):
    features = torch.zeros(1, channels, 6, 9, dtype=dtype, requires_grad=True)
    LocalGOCor(radius, eta=eta).filters(features).sum().backward()
    assert {"_descend_kernel", "_descend_backward_kernel", "_gather_kernel"} <= {*compiled}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_local_volume(dtype, layout, compiled):
    features = torch.zeros(1, 32, 6, 9, dtype=dtype).to(memory_format=layout)
    LocalGOCor(4)(features, features)
    assert compiled[-1] == "_volume_kernel"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("query_objective", [True, False])
@pytest.mark.parametrize("initializer", ["simple", "flexible-context"])
@torch.no_grad()
def test_global_volume(dtype, query_objective, initializer, compiled):
    features = torch.zeros(1, 32, 6, 9, dtype=dtype)
    GlobalGOCor(32, initializer=initializer, query_objective=query_objective, form="gram")(features, features)
    assert {"_start_kernel", "_sums_kernel", "_update_kernel"} <= {*compiled}


def test_smoothing(compiled):
    objective = QueryObjective()
    smoothing = QuerySmoothing(objective.weight1, objective.weight2, lambda x: x, lambda x: x)
    smoothing.twice(torch.zeros(1, 5, 6, 7, 8, requires_grad=True)).sum().backward()
    assert compiled


@pytest.mark.parametrize("dtype", DTYPES)
def test_lookup(dtype, compiled):
    query = torch.zeros(1, 33, 6, 9, dtype=dtype)
    lookup(torch.zeros(1, 33, 4, 5), pool_pyramid(query, 2), torch.zeros(1, 2, 4, 5))
    assert compiled == ["_lookup_kernel"] * 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_a_lookup(dtype, compiled, monkeypatch):
    monkeypatch.setattr(select, "MAX_DENSE_LOOKUP", 0)
    query = torch.zeros(1, 33, 6, 9, dtype=dtype, requires_grad=True)
    lookup(torch.zeros(1, 33, 4, 5, requires_grad=True), [query], torch.zeros(1, 2, 4, 5)).sum().backward()
    assert compiled == ["_lookup_kernel", "_lookup_backward_kernel"]
