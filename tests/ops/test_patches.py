"""Comparison of images patch by patch."""

import cv2
import numpy as np
import torch

from gocor.ops.patches import PATCH, patch_correlation


def test_patches_correlate_whatever_the_light():
    image = torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (1, 3, 40, 50)))
    other = image.flip(3)
    darker = 0.4 * image + 30
    same, contrast = patch_correlation(image, darker)
    assert same.min() > 0.999
    found = patch_correlation(image, other)[0]
    assert found.abs().mean() < 0.2
    half = PATCH // 2
    first, second = (x - cv2.blur(x, (PATCH, PATCH)) for x in (y.mean(1)[0].numpy() for y in (image, other)))
    around = np.s_[20 - half : 21 + half, 30 - half : 31 + half]
    expected = (first[around] * second[around]).mean()
    expected /= np.sqrt((first[around] ** 2).mean() * (second[around] ** 2).mean())
    assert abs(found[0, 0, 20, 30] - expected) < 1e-3
    assert abs(contrast[0, 0, 20, 30] - np.sqrt((first[around] ** 2).mean())) < 1e-3
