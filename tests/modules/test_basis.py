import math

import pytest
import torch

from gocor.modules.basis import by_pair, displacement_distances, local_distances, triangular_basis

CPU = torch.device("cpu")


def test_knots_hit_and_interpolate():
    basis = triangular_basis(torch.tensor([0.0, 0.25, 0.5, 4.5, 100.0], dtype=torch.float64), 10, 0.5)
    assert basis.shape == (5, 10)
    expected = torch.zeros(5, 10, dtype=torch.float64)
    expected[0, 0] = expected[2, 1] = expected[3, 9] = expected[4, 9] = 1  # everything from 4.5 on is one class
    expected[1, 0] = expected[1, 1] = 0.5
    torch.testing.assert_close(basis, expected)


@pytest.mark.parametrize(("knots", "spacing"), [(1, 0.5), (2, 1.0), (7, 0.3)])
def test_sums_to_one(knots, spacing):
    basis = triangular_basis(torch.linspace(0, 8, 57, dtype=torch.float64), knots, spacing)
    torch.testing.assert_close(basis.sum(-1), torch.ones(57, dtype=torch.float64))


def test_local_distances():
    distances = local_distances(2, torch.float64, CPU).flatten()
    assert distances[12] == 0
    assert distances[2 * 5 + 4] == 2  # dy = 0, dx = 2
    assert distances[0].item() == pytest.approx(math.sqrt(8))


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (6, 2)])
def test_spreading_over_pairs_gives_their_distance(size):
    height, width = size
    spread = by_pair(displacement_distances(height, width, torch.float64, CPU), height, width)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    pixels = torch.stack([y.flatten(), x.flatten()], 1).double()
    torch.testing.assert_close(spread.flatten(1), torch.cdist(pixels, pixels))
