"""Lookups against the specification, which stores all pairs."""

import pytest
import torch
from torch.export import Dim

from gocor.ops import local_correlation, lookup, pool_pyramid, select
from gocor.ops.correlation import lookups, lookups_windows
from gocor.ops.correlation.lookups import lookup_all_pairs, repeated_lookup
from gocor.ops.correlation.lookups_windows import ScoreWindows


def problem(batch=2, channels=5, size=(6, 7), query=(9, 8), levels=3, dtype=torch.float64, spread=4.0):
    filters = torch.randn(batch, channels, *size, dtype=dtype)
    pyramid = pool_pyramid(torch.randn(batch, channels, *query, dtype=dtype), levels)
    middle = torch.tensor([query[1] / 2, query[0] / 2]).view(1, 2, 1, 1)
    return filters, pyramid, middle + spread * torch.randn(batch, 2, *size)


@pytest.mark.parametrize("radius", [0, 1, 4])
@pytest.mark.parametrize("levels", [1, 4])
@pytest.mark.parametrize("budget", [1, 5000, 2**20])
@pytest.mark.parametrize("spread", [0.5, 4.0, 1000.0])  # all tiles share a window, some do, none does
def test_equals_all_pairs(radius, levels, budget, spread, monkeypatch):
    monkeypatch.setattr(lookups_windows, "BUDGET", {"cpu": budget})
    filters, pyramid, coordinates = problem(levels=levels, spread=spread)
    out = lookup(filters, pyramid, coordinates, radius)
    assert out.shape == (2, levels * (2 * radius + 1) ** 2, 6, 7)
    torch.testing.assert_close(out, lookup_all_pairs(filters, pyramid, coordinates, radius), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("of", ["filters", "query", "both"])
def test_gradients_equal_all_pairs(of, monkeypatch):
    monkeypatch.setattr(lookups, "BUDGET", {"cpu": 500})
    filters, pyramid, coordinates = problem()
    query = pyramid[0]
    leaves = {"filters": [filters], "query": [query], "both": [filters, query]}[of]
    for leaf in leaves:
        leaf.requires_grad_()
    gradients = []
    for function in (lookup, lookup_all_pairs):
        out = function(filters, pool_pyramid(query, 3), coordinates, 2)
        gradients.append(torch.autograd.grad(out, leaves, torch.linspace(-1, 1, out.numel()).view_as(out).double()))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_at_their_own_place_lookups_are_a_local_correlation():
    reference, query = torch.randn(2, 1, 5, 6, 7)
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(7.0), indexing="ij")
    out = lookup(reference, [query], torch.stack([x, y])[None], 3)
    torch.testing.assert_close(out, local_correlation(reference, query, 3, normalize="sum"))


def test_positions_far_away_infinite_or_unknown_give_zero():
    filters, pyramid, coordinates = problem(batch=1)
    coordinates[0, 0, 0, :4] = torch.tensor([1e30, -1e30, float("inf"), float("nan")])
    out = lookup(filters, pyramid, coordinates, 2)
    assert out.isfinite().all()
    assert (out[:, :, 0, :4] == 0).all()


def test_a_constant_pyramid_is_read_alike_at_every_level():
    """Levels keep pixel centres: a linear ramp has the same value at one place in all of them."""
    ramp = torch.arange(16.0).view(1, 1, 1, 16).expand(1, 1, 16, 16)
    out = lookup(torch.ones(1, 1, 1, 1), pool_pyramid(ramp, 3), torch.tensor([7.25, 8.0]).view(1, 2, 1, 1), 0)
    torch.testing.assert_close(out.flatten(), torch.full((3,), 7.25))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_dtypes(half):
    filters, pyramid, coordinates = problem(dtype=torch.float32)
    exact = lookup(filters, pyramid, coordinates, 2)
    out = lookup(filters, [level.to(half) for level in pyramid], coordinates, 2)
    assert out.dtype == half
    torch.testing.assert_close(out.float(), exact, rtol=0.05, atol=0.05)


def test_opcheck():
    filters, pyramid, coordinates = problem(dtype=torch.float32)
    leaves = filters.requires_grad_(), pyramid[0].requires_grad_(), coordinates
    torch.library.opcheck(torch.ops.gocor.lookup.default, (*leaves, 2))


def test_compiles_and_exports():
    filters, pyramid, coordinates = problem(dtype=torch.float32, levels=2)
    compiled = torch.compile(lookup, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(filters, pyramid, coordinates, 2), lookup(filters, pyramid, coordinates, 2))

    class Lookup(torch.nn.Module):
        def forward(self, filters, query, coordinates):
            return lookup(filters, pool_pyramid(query, 2), coordinates, 2)

    exported = torch.export.export(Lookup(), (filters, pyramid[0], coordinates))
    assert not any("gocor" in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(
        exported.module()(filters, pyramid[0], coordinates),
        lookup(filters, pyramid, coordinates, 2),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("limit", [0, 42 * 20, 2**24])  # stores no level, those that are small, all
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_repeated_lookups_equal_single_ones(limit, dtype, monkeypatch):
    monkeypatch.setattr(select, "MAX_STORED_SCORES", limit)
    filters, pyramid, coordinates = problem(dtype=torch.float32)
    coordinates[0, 0, 0, :3] = torch.tensor([1e30, float("inf"), float("nan")])
    pyramid = [level.to(dtype) for level in pyramid]
    stored = [select.stores_all_scores(filters, level) for level in pyramid]
    assert stored == {0: [False] * 3, 42 * 20: [False, True, True], 2**24: [True] * 3}[limit]
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):  # does not round the products
        found = repeated_lookup(filters, pyramid, 2)(coordinates)
    expected = lookup(filters, pyramid, coordinates, 2)
    assert found.dtype == dtype
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_windows_are_computed_anew_only_where_positions_have_left_them(monkeypatch):
    filters, pyramid, coordinates = problem(batch=1, size=(8, 12), query=(20, 30), spread=0.5)
    windows = ScoreWindows(filters, pyramid[0], 2)
    computed = []
    monkeypatch.setattr(torch, "bmm", lambda a, b, bmm=torch.bmm: computed.append(len(a)) or bmm(a, b))
    for shift, expected in ((0, 6), (0, 0), (1, 0), (torch.linspace(0, 9, 12), 4), (torch.tensor(40.0), 6), (40.5, 0)):
        computed.clear()
        at = coordinates + shift
        found = windows(at)
        assert sum(computed) == expected
        torch.testing.assert_close(found, lookup_all_pairs(filters, pyramid[:1], at, 2), rtol=1e-5, atol=1e-5)


def test_repeated_lookups_have_gradients():
    filters, pyramid, coordinates = problem()
    assert not select.stores_scores(filters.requires_grad_(), *pyramid)
    repeated_lookup(filters, pyramid, 1)(coordinates).sum().backward()
    assert filters.grad is not None


class TwoLookups(torch.nn.Module):
    """Two lookups of the same filters, one pixel apart."""

    def forward(self, filters, query, coordinates):
        look_up = repeated_lookup(filters, pool_pyramid(query, 3), 1)
        return look_up(coordinates) + look_up(coordinates + 1)


def test_an_exported_graph_computes_all_pairs_once_and_takes_any_size():
    sizes = [Dim(name, min=8, max=64) for name in ("height", "width", "query_height", "query_width")]
    shapes = {2: sizes[0], 3: sizes[1]}, {2: sizes[2], 3: sizes[3]}, {2: sizes[0], 3: sizes[1]}
    filters, pyramid, coordinates = problem(dtype=torch.float32, size=(9, 10), query=(12, 11))
    exported = torch.export.export(TwoLookups(), (filters, pyramid[0], coordinates), dynamic_shapes=shapes)
    graphs = [module.graph for module in exported.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    targets = [str(node.target) for graph in graphs for node in graph.nodes]
    assert sum("einsum" in target for target in targets) == 3  # one per level, though there are two lookups
    for query_size in ((9, 8), (8, 17), (12, 10)):
        filters, pyramid, coordinates = problem(dtype=torch.float32, size=(8, 11), query=query_size)
        found = exported.module()(filters, pyramid[0], coordinates)
        torch.testing.assert_close(found, TwoLookups()(filters, pyramid[0], coordinates), rtol=1e-4, atol=1e-4)


def test_a_single_row_or_column_is_not_averaged():
    row = torch.arange(8.0).view(1, 1, 1, 8)
    for query, sizes in ((row, [(1, 8), (1, 4), (1, 2), (1, 1)]), (row.mT, [(8, 1), (4, 1), (2, 1), (1, 1)])):
        pyramid = pool_pyramid(query, 4)
        assert [tuple(level.shape[2:]) for level in pyramid] == sizes
        assert pyramid[1].flatten().tolist() == [0.5, 2.5, 4.5, 6.5]
        assert pyramid[3].item() == 3.5


def test_bad_input_is_an_error():
    filters, pyramid, coordinates = problem()
    with pytest.raises(ValueError, match="coordinates must have shape"):
        lookup(filters, pyramid, coordinates[:, :, 1:])
    with pytest.raises(ValueError, match="at least one level"):
        lookup(filters, [], coordinates)
    with pytest.raises(ValueError, match="agree in batch, channels and device"):
        lookup(filters[:, :2], pyramid, coordinates)
