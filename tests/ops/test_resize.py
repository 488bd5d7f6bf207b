"""Resizing by area averages."""

import pytest
import torch
import torch.nn.functional as F

from gocor.ops import resize


@pytest.mark.parametrize("size", [(3, 4), (6, 9), (5, 2), (1, 1), (8, 13)])
def test_matrices_average_as_torch_does(size, monkeypatch):
    x = torch.randn(2, 3, 6, 9, dtype=torch.float64)
    expected = F.interpolate(x, size, mode="area")
    torch.testing.assert_close(resize.resize_by_area(x, size), expected)
    monkeypatch.setattr(resize, "exporting", lambda: True)
    torch.testing.assert_close(resize.resize_by_area(x, size), expected)


def test_it_exports_for_any_size():
    class Half(torch.nn.Module):
        def forward(self, x):
            return resize.resize_by_area(x, (x.shape[2] // 2, x.shape[3] // 2))

    x = torch.randn(1, 2, 10, 14)
    sizes = {2: torch.export.Dim("height", min=4), 3: torch.export.Dim("width", min=4)}
    program = torch.export.export(Half(), (x,), dynamic_shapes={"x": sizes})
    for shape in ((9, 21), (16, 7)):
        x = torch.randn(1, 2, *shape)
        torch.testing.assert_close(program.module()(x), F.interpolate(x, [n // 2 for n in shape], mode="area"))
