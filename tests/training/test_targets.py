"""Ground truth of the levels."""

import pytest
import torch

from gocor.models import create_model
from gocor.training.targets import level_target


def everywhere(flow):
    return torch.ones_like(flow[:, :1], dtype=torch.bool)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("basenet-gocor-tiny", [(256, 256)] * 3),
        ("glunet-gocor-tiny", [(256, 256)] * 2 + [(320, 384)] * 2),
        ("pwcnet-gocor-tiny", [(320, 384)] * 5),
    ],
)
def test_units_are_those_that_the_levels_say(name, expected):
    """There are as many as levels; the last are those that `forward` makes full-resolution flow from."""
    network = create_model(name)
    assert network.level_units(320, 384) == expected
    assert expected[-1] == network.working_size(320, 384)
    images = [torch.rand(1, 3, 320, 384) for _ in range(2)]
    with torch.no_grad():
        flows = network.levels(*network.prepare(*images, network.working_size(320, 384)))
    assert len(flows) == len(expected)


@pytest.mark.parametrize("grid", [(4, 4), (8, 16), (5, 3), (40, 40)])
def test_a_linear_flow_is_exact_at_every_ratio(grid):
    """Centres of coarse pixels lie between fine ones: a pixel picked as it is would be half a pixel off."""
    height, width = 16, 32
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(32.0), indexing="ij")
    flow = torch.stack([0.5 * x - 0.25 * y + 1, 0.125 * x + 0.25 * y - 2])[None]
    target, known = level_target(flow, everywhere(flow), grid, (2 * height, width))
    rows = ((torch.arange(grid[0]) + 0.5) * height / grid[0] - 0.5).clamp(0, height - 1)[:, None]
    columns = ((torch.arange(grid[1]) + 0.5) * width / grid[1] - 0.5).clamp(0, width - 1)[None]
    expected = torch.stack([0.5 * columns - 0.25 * rows + 1, 2 * (0.125 * columns + 0.25 * rows - 2)])[None]
    assert known.all()
    torch.testing.assert_close(target, expected)


def test_motions_of_two_objects_are_not_mixed():
    flow = torch.zeros(1, 2, 8, 8)
    flow[:, 0, :, 4:] = 10.0  # an edge in the middle between the columns 3 and 4, where centres of a 1-pixel grid lie
    for grid in ((2, 2), (1, 1), (3, 3), (16, 16)):
        target, known = level_target(flow, everywhere(flow), grid, (8, 8))
        assert known.all()
        assert set(target[:, 0].unique().tolist()) <= {0.0, 10.0}
    mixed = torch.nn.functional.interpolate(flow, (1, 1), mode="bilinear", align_corners=False)
    assert mixed[0, 0].item() == 5.0  # which is what plain resizing does


def test_unknown_pixels_do_not_leak():
    flow = torch.full((1, 2, 4, 4), 3.0)
    mask = everywhere(flow)
    mask[..., :2, :2] = False
    mask[..., 1, 2] = False
    flow = torch.where(mask, flow, torch.tensor(float("nan")))
    target, known = level_target(flow, everywhere(flow), (2, 2), (4, 4))  # NaN is unknown whatever the mask says
    assert known[0, 0].tolist() == [[False, True], [True, True]]
    assert (target[known.expand_as(target)] == 3).all()
    assert (target[~known.expand_as(target)] == 0).all()
