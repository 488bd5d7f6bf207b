"""Sampling of image pyramids."""

import numpy as np
import pytest
import torch

from gocor.data.synthetic.sampling import Pyramid, levels, reflect

from .toy import photo


def images(height=32, width=48):
    return torch.from_numpy(np.stack([photo(height, width, seed) for seed in range(2)])).permute(0, 3, 1, 2)


def grid(height, width, step=1.0):
    y, x = torch.meshgrid(torch.arange(height) * step, torch.arange(width) * step, indexing="ij")
    return x.expand(2, -1, -1), y.expand(2, -1, -1)


def test_level_zero_is_the_original():
    source = images()
    x, y = grid(32, 48)
    assert (Pyramid(source).sample(x, y, torch.zeros(2, 1, 1)) - source).abs().max() < 0.01


@pytest.mark.parametrize("level", [1, 2, 3])
def test_pyramid_levels_are_means(level):
    """At the centre of each block of pixels, a level holds the mean of the block, in the last row and column too."""
    source, side = images(), 2**level
    x, y = grid(32 // side, 48 // side, side)
    middle = (side - 1) / 2
    seen = Pyramid(source, halvings=3).sample(x + middle, y + middle, torch.full((2, 1, 1), float(level)))
    means = source.float().unflatten(2, (-1, side)).mean(3).unflatten(3, (-1, side)).mean(4)
    assert (seen - means).abs().max() < 0.01


def test_borders_are_replicated_and_levels_do_not_mix():
    source = images()
    x, y = torch.full((2, 1, 1), 500.0), torch.full((2, 1, 1), -500.0)
    for level, expected in ((0.0, source[:, :, 0, -1].float()), (2.0, source[:, :, :4, -4:].float().mean((2, 3)))):
        seen = Pyramid(source).sample(x, y, torch.full((2, 1, 1), level))
        assert (seen[:, :, 0, 0] - expected).abs().max() < 0.01


def test_smaller_images_end_at_their_own_size():
    source = images()
    sizes = torch.tensor([[20.0, 30.0], [32.0, 48.0]])[..., None, None]
    seen = Pyramid(source).sample(torch.full((2, 1, 1), 99.0), torch.full((2, 1, 1), 99.0), torch.zeros(2, 1, 1), sizes)
    assert (seen[0, :, 0, 0] - source[0, :, 19, 29]).abs().max() < 0.01
    assert (seen[1, :, 0, 0] - source[1, :, 31, 47]).abs().max() < 0.01


def test_uninitialised_memory_is_not_read(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *size, **options: torch.full(*size, torch.nan, **options))
    assert Pyramid(images(), halvings=3).canvas.isfinite().all()


@pytest.mark.parametrize(("step", "level"), [(0.5, 0), (1, 0), (1.3, 0), (1.6, 1), (2.5, 1), (3, 2), (9, 2)])
def test_levels_follow_the_scale(step, level):
    x, y = grid(24, 40, step)
    assert (levels(x, y) == level).all()
    assert (levels(y.transpose(1, 2), x.transpose(1, 2)) == level).all()


def test_a_fine_pattern_is_averaged_without_aliasing():
    pattern = 255 * (torch.arange(64)[:, None] + torch.arange(64)).remainder(2).expand(2, 3, 64, 64).to(torch.uint8)
    x, y = grid(16, 16, 3.9)
    seen = Pyramid(pattern).sample(x, y, levels(x, y))
    assert (seen - 127.5).abs().max() < 1


def test_reflection():
    folded, inside = reflect(torch.tensor([-3.0, 0, 4, 9, 10, 20, 37]), torch.tensor(10.0))
    assert folded.tolist() == [3, 0, 4, 9, 8, 2, 1]
    assert inside.tolist() == [False, True, True, True, False, False, False]
