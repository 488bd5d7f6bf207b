"""VGG-16: strips of an image give what the whole image gives."""

import pytest
import torch

from gocor.models import backbones
from gocor.models.backbones import VGGPyramid


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("size", [(4, 20), (31, 17), (32, 16), (33, 18), (34, 16), (35, 16), (97, 24)])
@pytest.mark.parametrize("rows", [16, 32])
def test_strips_equal_the_whole_image(ceil_mode, size, rows, monkeypatch):
    pyramid, images = VGGPyramid(width=1 / 16, ceil_mode=ceil_mode), torch.randn(2, 3, *size)
    calls = []
    pyramid.level_0.register_forward_hook(lambda module, inputs, output: calls.append(inputs[0].shape[2]))
    monkeypatch.setattr(backbones, "rows_of_strips", lambda *tensors: rows)
    with torch.inference_mode():
        strips = pyramid.before_pooling(images, (2,))[0]
        assert len(calls) == 2 * len(range(0, size[0] if ceil_mode else size[0] // 2 * 2, rows))
        assert max(calls) <= rows + 4
        monkeypatch.setattr(backbones, "rows_of_strips", lambda *tensors: None)
        whole = pyramid.before_pooling(images, (2,))[0]
    torch.testing.assert_close(strips, whole, rtol=1e-5, atol=1e-6)


def test_images_with_gradients_are_not_cut():
    pyramid, images = VGGPyramid(width=1 / 16), torch.randn(1, 3, 64, 16, requires_grad=True)
    pyramid.before_pooling(images, (2,))[0].sum().backward()
    assert images.grad is not None
