"""Global GOCor's kernels against the Gram form in plain torch."""

import copy

import pytest
import torch

from gocor import GlobalGOCor
from gocor.ops.descent import global_triton
from tests.conftest import relative_error
from tests.ops.kernels.common import DEVICE, INTERPRETED, kernels_everywhere, perturbed, poisoned_memory

# The interpreter takes time for every program: there, maps are small and blocks fit them.
RAGGED = (2, 7, (3, 5), (4, 3))
SMALL = (1, 5, (2, 3), (1, 2)) if INTERPRETED else (2, 70, (11, 13), (12, 9))
BLOCKS = {"COLUMNS": 16, "BLOCK": 16, "ADJOINT_BLOCK": 16, "CHANNELS": 16} if INTERPRETED else {}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    for name, value in BLOCKS.items():
        monkeypatch.setattr(global_triton, name, value)


def features(batch, channels, reference, query, dtype=torch.float32):
    return [torch.randn(batch, channels, *size, device=DEVICE).to(dtype) for size in (reference, query)]


def module_of(channels, **options):
    module = perturbed(GlobalGOCor(channels, form="gram", **options)).to(DEVICE)
    if module.query_objective is not None:
        for weight in module.query_objective.parameters():
            weight.data.mul_(0.7)  # so that the query term counts
    return module


@pytest.fixture
def kernels(monkeypatch):
    with kernels_everywhere(monkeypatch):
        yield


def check(module, reference, query, monkeypatch, limit=2e-6):
    """The kernels' volume is as near to the one in float64 as the plain one is."""
    with torch.no_grad():
        with kernels_everywhere(monkeypatch, run=False):
            exact = copy.deepcopy(module).double()(reference.double(), query.double())
            plain = module(reference.float(), query.float())
        with kernels_everywhere(monkeypatch), poisoned_memory(monkeypatch):
            assert module.selected_form(reference, query).name == "gram-kernels"
            ours = module(reference, query)
    assert ours.shape == exact.shape
    assert ours.dtype == reference.dtype
    assert ours.is_contiguous()
    assert relative_error(ours, exact) <= max(2 * relative_error(plain, exact), limit)


@pytest.mark.parametrize(
    ("shape", "iters", "query_objective"),
    [(RAGGED, 1, True), (SMALL, 0, True), (SMALL, 3, True), (RAGGED, 0, False), (RAGGED, 1, False), (RAGGED, 3, False)],
)
def test_equals_the_plain_form(shape, iters, query_objective, monkeypatch):
    check(module_of(shape[1], query_objective=query_objective, iters=iters), *features(*shape), monkeypatch)


@pytest.mark.parametrize(
    "options",
    [
        {"eta": 0.1},
        {"reference_objective": "quadratic"},
        {"initializer": "zero"},
        {"initializer": "simple"},
        {"initializer": "flexible-simple"},
        {"initializer": "context"},
        {"scale_free_step": False},
        {"knots": 2, "spacing": 0.7},
        {"bidirectional": True},
        {"query_objective": True, "eta": 0.1},
        {"regularizer": "relative"},
        {"query_objective": True, "regularizer": "relative"},
        {"query_objective": True, "scale_free_step": False},
        {"query_objective": True, "query_channels": (16, 32)},
    ],
    ids=str,
)
def test_with_every_option(options, monkeypatch):
    check(module_of(SMALL[1], iters=2, **{"query_objective": False} | options), *features(*SMALL), monkeypatch)


@pytest.mark.parametrize("query_objective", [False, True])
@pytest.mark.parametrize("parts", [2, 4])
def test_programs_that_take_many_rows(query_objective, parts, monkeypatch):
    for name, value in {"PARTS": parts, "PARTS_OF_LOCATION": parts // 2, "COLUMNS": 16}.items():
        monkeypatch.setattr(global_triton, name, value)
    module = module_of(20, query_objective=query_objective, iters=2)
    check(module, *features(1, 20, (3, 7), (1, 3)), monkeypatch)


@pytest.mark.usefixtures("kernels")
@torch.no_grad()
def test_first_filters_of_flat_images():
    flat = torch.full((1, 8, 9, 10), 0.7, device=DEVICE)  # of which the mean rounds to another number
    volume = GlobalGOCor(8, form="gram", query_objective=False, iters=0).to(DEVICE)(flat, flat)
    assert volume.abs().max() < 2  # for β = 1


@pytest.mark.parametrize("sizes", [((1, 1), (1, 1)), ((5, 7), (1, 2)), ((1, 6), (4, 1))])
def test_other_sizes(sizes, monkeypatch):
    check(module_of(50, iters=1), *features(1, 50, *sizes), monkeypatch)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_features_of_sixteen_bits_in_either_layout(layout, monkeypatch):
    pair = [x.to(memory_format=layout) for x in features(*RAGGED, dtype=torch.float16)]
    check(module_of(7, iters=1, query_objective=False), *pair, monkeypatch, limit=1e-3)


def test_features_with_gaps(monkeypatch):
    pair = [x[:, ::2, :, :-1] for x in features(2, 14, (3, 6), (4, 4))]
    check(module_of(7, iters=1, query_objective=False), *pair, monkeypatch)


@pytest.mark.usefixtures("kernels")
def test_a_nan_stays_in_its_sample():
    module, (reference, query) = module_of(7, iters=1), features(3, 7, (2, 3), (1, 2))
    with torch.no_grad():
        clean = module(reference, query)
        reference[1, 3, 1, 1] = float("nan")
        volume = module(reference, query)
        assert torch.equal(volume[[0, 2]], clean[[0, 2]])
        assert volume[1].isnan().any()
        assert module(reference[:0], query[:0]).shape == (0, 2, 2, 3)


@pytest.fixture
def calls(monkeypatch):
    used = []
    volume = global_triton.volume
    monkeypatch.setattr(global_triton, "volume", lambda *a: used.append(a) or volume(*a))
    return used


@pytest.mark.usefixtures("kernels")
def test_used_without_gradients_only(calls):
    module, pair = module_of(5, iters=1), features(1, 5, (2, 3), (1, 2))
    module(*pair).sum().backward()
    assert not calls
    with torch.no_grad():
        module(*pair)
        assert len(calls) == 1
        module.form = "filters"
        module(*pair)
    assert len(calls) == 1


@torch.no_grad()
def test_used_where_there_are_kernels(calls):
    module, pair = module_of(5, iters=1), features(1, 5, (2, 3), (1, 2))
    module(*pair)
    assert len(calls) == (not INTERPRETED)
    for other in (module_of(5, query_kernel=5), module_of(5, query_channels=(4, 16)), module.double()):
        other(*(x.to(other.log_step_factor.dtype) for x in pair))
    assert len(calls) == (not INTERPRETED)


@pytest.mark.usefixtures("kernels")
@torch.no_grad()
def test_parameters_are_kept_until_they_change():
    module, pair = module_of(5, iters=1), features(1, 5, (2, 3), (1, 2))
    first = module(*pair)
    kept = module._derived
    assert torch.equal(module(*pair), first)
    module(*features(1, 5, (1, 2), (1, 1)))
    assert module._derived is kept
    for parameter in (module.objective.mask, module.query_objective.weight2, module.log_step_factor):
        parameter.add_(0.3)
        assert relative_error(module(*pair), first) > 1e-6
        assert module._derived is not kept
        kept = module._derived
    fresh = copy.deepcopy(module)
    fresh._derived = (None, None)
    assert torch.equal(module(*pair), fresh(*pair))


@pytest.mark.usefixtures("kernels")
@torch.no_grad()
def test_compiles_as_one_graph(calls):
    module, pair = module_of(5, iters=1), features(1, 5, (2, 3), (1, 2))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*pair), module(*pair))
    assert len(calls) == 2


@pytest.mark.skipif(INTERPRETED, reason="CUDA graphs need a GPU")
@torch.no_grad()
def test_can_be_recorded():
    module, pair = GlobalGOCor(64).to(DEVICE), features(2, 64, (16, 16), (16, 16))
    expected = module(*pair)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        volume = module(*pair)
    graph.replay()
    assert torch.equal(volume, expected)
