"""Iterations on tiles against the plain ones: values, precision, and when they are used."""

import pytest
import torch

from gocor import LocalGOCor
from gocor.ops.correlation import tiling
from tests.conftest import relative_error


def both(options: dict, size: tuple[int, ...], iters: int = 3, dtype: torch.dtype = torch.float64):
    """Volumes of one module on tiles and by plain operators, on features with some structure."""
    layer = LocalGOCor(**options)
    for parameter in layer.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    reference, query = torch.randn(2, *size, dtype=dtype)
    with torch.no_grad():
        on_tiles = layer(reference, query, iters)
        layer.form = "filters"
        return on_tiles, layer(reference, query, iters)


@pytest.mark.parametrize(
    "size", [(1, 5, 1, 1), (2, 4, 7, 9), (3, 8, 6, 16), (1, 3, 2, 33), (1, 6, 19, 3), (0, 4, 5, 6)]
)
@pytest.mark.parametrize("radius", [2, 4])
def test_equals_the_plain_iteration(size, radius):
    torch.testing.assert_close(*both({"radius": radius}, size))


@pytest.mark.parametrize(
    "options",
    [
        {"initializer": "zero"},
        {"initializer": "context"},
        {"initializer": "flexible-context", "channels": 6},
        {"eta": 0.3},
        {"reference_objective": "quadratic"},
        {"scale_free_step": False},
        {"bidirectional": True},
        {"step_factor": 0.5, "regularization": 0.3},
        {"regularizer": "relative"},
    ],
)
def test_equals_the_plain_iteration_with_every_option(options):
    torch.testing.assert_close(*both({"radius": 3} | options, (2, 6, 9, 13)))


@pytest.mark.parametrize("iters", [0, 1, 7])
@pytest.mark.parametrize("budget", [1, 2**14, 2**24])
def test_however_many_iterations_and_tiles_at_once(iters, budget, monkeypatch):
    monkeypatch.setattr(tiling, "BUDGET", {"cpu": budget})
    torch.testing.assert_close(*both({}, (5, 6, 11, 21), iters))


def test_as_precise_as_the_plain_iteration():
    layer = LocalGOCor(radius=4, iters=7)
    reference, query = torch.randn(2, 1, 16, 20, 24, dtype=torch.float64)
    with torch.no_grad():
        exact = layer(reference, query)
        on_tiles = layer(reference.float(), query.float())
        layer.form = "filters"
        plain = layer(reference.float(), query.float())
    assert relative_error(on_tiles, exact) <= 2 * max(relative_error(plain, exact), 1e-7)


def test_leaves_its_inputs_alone():
    layer = LocalGOCor(radius=2, initializer="zero")
    pair = torch.randn(2, 1, 4, 6, 8)
    before = pair.clone()
    with torch.no_grad():
        layer(*pair)
    assert torch.equal(pair, before)


def test_channels_last_features():
    layer = LocalGOCor(radius=2).double()
    reference, query = torch.randn(2, 1, 4, 6, 8, dtype=torch.float64)
    with torch.no_grad():
        expected = layer(reference, query)
        found = layer(*(x.to(memory_format=torch.channels_last) for x in (reference, query)))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("regularizer", ["absolute", "relative"])
def test_filters(regularizer):
    layer = LocalGOCor(3, regularizer=regularizer).double()
    reference = torch.randn(3, 6, 9, 13, dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.1]).double().view(3, 1, 1, 1)
    with torch.no_grad():
        on_tiles = layer.filters(reference)
        layer.form = "filters"
        torch.testing.assert_close(on_tiles, layer.filters(reference))
