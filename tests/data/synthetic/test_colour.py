"""Photometric changes."""

import cv2
import numpy as np
import pytest
import torch

from gocor.data.synthetic import Colour
from gocor.data.synthetic.colour import Photometry, draw_colours
from gocor.data.synthetic.motion import Frame

from .toy import photo

NAMES = "brightness contrast saturation channels gamma grey common exposure light blur noise"
NONE = dict.fromkeys(NAMES.split(), 0.0)
SIZE = (40, 56)


def images(count=3):
    one = torch.from_numpy(photo(*SIZE, sigma=2)).permute(2, 0, 1).float()
    return one.expand(count, 2, -1, -1, -1).contiguous()


def changed(source, seed=0, **options):
    colour = Colour(**{**NONE, **options})
    drawn = draw_colours(colour, len(source), np.random.default_rng(seed))
    tensors = {name: torch.from_numpy(array).float() for name, array in drawn.items()}
    return Photometry(colour, Frame(*SIZE), torch.device("cpu"))(source, tensors), drawn


def test_no_change():
    assert (changed(images())[0] - images()).abs().max() < 1e-3


def test_brightness_shifts_all_pixels():
    result, _ = changed(images(), brightness=0.05)
    difference = result - images()
    assert (difference.amax((2, 3, 4)) - difference.amin((2, 3, 4))).max() < 0.01
    assert 1 < difference.abs().max() <= 0.05 * 255 + 0.01


def test_gamma_is_a_power():
    result, drawn = changed(images(), gamma=0.5)
    expected = 255 * (images() / 255) ** torch.from_numpy(drawn["gamma"])[:, :, None, None, None]
    assert (result - expected).abs().max() < 0.01
    assert (result - images()).abs().max() > 10


def test_grey_takes_the_colours_of_both_images():
    result, _ = changed(images(), grey=1.0, channels=0.3)
    assert (result - result[:, :, :1]).abs().max() < 0.01
    luma = (images() * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(2, keepdim=True)
    assert (result - luma).abs().max() < 0.01


def test_exposure_is_one_factor():
    result, drawn = changed(images(), exposure=0.9)
    factor = np.exp(drawn["light"][:, :, 0, 0])
    assert (result - images() * torch.from_numpy(factor)[:, :, None, None, None]).abs().max() < 0.01
    assert factor.max() <= 1
    assert factor.std() > 0.1
    assert np.abs(factor[:, 0] - factor[:, 1]).max() > 0.1


def test_light_varies_smoothly_and_from_image_to_image():
    grey = torch.full((64, 2, 3, *SIZE), 64.0)
    result, _ = changed(grey, light=0.3, light_share=0.5)
    light = (result / 64).log()
    assert (light - light[:, :, :1]).abs().max() < 1e-4  # the same for all channels
    spread = light[:, :, 0].std((2, 3))
    lit = spread > 1e-3
    assert 0.35 < lit.float().mean() < 0.65
    assert (lit[:, 0] != lit[:, 1]).any()
    assert 0.2 < spread[lit].mean() < 0.35
    assert light.diff(dim=4).abs().max() < 0.15  # smooth: 14 pixels lie between two values of the field


@pytest.mark.parametrize(("blur", "taps"), [(0.8, 5), (2.0, 9), (4.0, 17)])
def test_blur_agrees_with_opencv(blur, taps):
    source = images()
    result, drawn = changed(source, blur=blur, blur_share=1.0)
    assert drawn["kernel"].shape[-1] == taps
    for image, kernel in ((0, drawn["kernel"][0, 0]), (1, drawn["kernel"][0, 1])):
        expected = cv2.sepFilter2D(
            photo(*SIZE, sigma=2).astype(np.float32), -1, kernel, kernel, borderType=cv2.BORDER_REPLICATE
        )
        assert np.abs(result[0, image].permute(1, 2, 0).numpy() - expected).max() < 0.05
    assert (result - source).abs().max() > 1


def test_noise_differs_everywhere_and_has_the_drawn_strength():
    grey = torch.full((4, 2, 3, *SIZE), 128.0)
    result, drawn = changed(grey, noise=0.1)
    noise = (result - 128) / 255
    assert np.allclose(noise.std((2, 3, 4)), drawn["noise"], rtol=0.1)
    flat = noise.flatten(0, 1).flatten(1)
    correlation = torch.corrcoef(flat)
    assert (correlation - torch.eye(8)).abs().max() < 0.06


def test_images_change_independently_or_together():
    apart, _ = changed(images(64), brightness=0.1, common=0.0)
    together, _ = changed(images(64), brightness=0.1, common=1.0)
    shift = (apart - images(64)).mean((2, 3, 4))
    assert abs(np.corrcoef(shift.T)[0, 1]) < 0.35
    assert (together[:, 0] - together[:, 1]).abs().max() < 0.01
    assert (together - images(64)).abs().max() > 5


@pytest.mark.parametrize("seed", range(3))
def test_images_stay_in_range(seed):
    strong = {"brightness": 0.6, "contrast": 1.0, "saturation": 1.0, "channels": 0.5, "gamma": 1.0, "noise": 0.3,
              "exposure": 1.0, "light": 1.0}  # fmt: skip
    result, _ = changed(images(), seed, **strong)
    assert result.isfinite().all()
    assert result.min() >= 0
    assert result.max() <= 255
