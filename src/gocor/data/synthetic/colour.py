"""Photometric changes: drawn on the CPU as matrices and kernels, applied on the device to all images at once."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from .motion import Frame
from .settings import Colour

LUMA = np.array([0.299, 0.587, 0.114])
MID_GREY = 0.45
LIGHT_GRID = 5  # An illumination field is interpolated from this many values along a side of the image.
NOISE_LENGTH = 1 << 22  # numbers of the noise texture, at least
NOISE_SEED = 20200916


def draw_colours(colour: Colour, count: int, rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Draw the changes of `count` pairs. The second axis of each array is (reference, query).

    Returns:
        `colour_matrix` `(B, 2, 3, 4)`: affine map of RGB in [0, 1]. `gamma` `(B, 2)`: exponents. `kernel`
        `(B, 2, taps)`: blur kernels. `noise` `(B, 2)`: standard deviations, relative to the full range. `noise_offset`
        `(B, 2)`: positions in the noise texture, from 0 to 1. `light` `(B, 2, LIGHT_GRID, LIGHT_GRID)`: logarithms of
        the factors of exposure and illumination.
    """
    own, both = rng.uniform(-1, 1, (7, count, 2)), rng.uniform(-1, 1, (7, count, 1))
    unit = (1 - colour.common) * own + colour.common * both
    brightness, contrast = unit[0] * colour.brightness, np.exp(unit[1] * colour.contrast)
    saturation = np.clip(1 + unit[2] * colour.saturation, 0, None)
    saturation[rng.random(count) < colour.grey] = 0
    channels = np.exp(np.moveaxis(unit[3:6], 0, -1) * colour.channels)  # (B, 2, 3)
    channels[saturation == 0] = 1
    mix = saturation[..., None, None] * np.eye(3) + (1 - saturation)[..., None, None] * LUMA
    gain = contrast[..., None] * channels
    offset = np.broadcast_to(((1 - contrast) * MID_GREY + brightness)[..., None, None], (count, 2, 3, 1))
    matrix = np.concatenate([gain[..., None] * mix, offset], -1)

    sigma = rng.uniform(0, 1, (count, 2)) * colour.blur * (rng.random((count, 2)) < colour.blur_share)
    half = math.ceil(2 * colour.blur)
    taps = np.arange(-half, half + 1)
    kernel = np.exp(-0.5 * (taps / np.maximum(sigma, 0.05)[..., None]) ** 2)
    noise, noise_offset = rng.uniform(0, 1, (count, 2)) * colour.noise, rng.random((count, 2))
    lit = (rng.random((count, 2)) < colour.light_share)[..., None, None]
    light = lit * colour.light * rng.standard_normal((count, 2, LIGHT_GRID, LIGHT_GRID))
    light -= light.max((2, 3), keepdims=True) / 2 + rng.uniform(0, 1, (count, 2, 1, 1)) * colour.exposure
    return {
        "colour_matrix": matrix,
        "gamma": np.exp(unit[6] * colour.gamma),
        "kernel": kernel / kernel.sum(-1, keepdims=True),
        "noise": noise,
        "noise_offset": noise_offset,
        "light": light,
    }


class Photometry:
    """Applies drawn changes on a device. Noise is read from a fixed texture, at a random offset for each image."""

    def __init__(self, colour: Colour, frame: Frame, device: torch.device) -> None:
        self._blurs = colour.blur > 0 and colour.blur_share > 0
        self._lights = colour.exposure > 0 or (colour.light > 0 and colour.light_share > 0)
        self._gamma = colour.gamma > 0
        self._noise: Tensor | None = None
        if colour.noise > 0:
            length = max(NOISE_LENGTH, 6 * frame.height * frame.width)
            values = np.random.default_rng(NOISE_SEED).standard_normal(length, np.float32)
            self._noise = torch.from_numpy(values).to(device)

    def __call__(self, images: Tensor, drawn: dict[str, Tensor]) -> Tensor:
        """Apply the changes.

        Args:
            images: `(B, 2, 3, H, W)` float32 in [0, 255], reference and query.
            drawn: the result of `draw_colours` as tensors.

        Returns:
            Images of the same shape, in [0, 255].
        """
        shape, (height, width) = images.shape, images.shape[-2:]
        images = images.flatten(0, 1)  # (2B, 3, H, W)
        if self._blurs:
            images = _blur(images, drawn["kernel"].flatten(0, 1))
        if self._lights:
            light = drawn["light"].flatten(0, 1)[:, None]
            light = F.interpolate(light, (height, width), mode="bicubic", align_corners=True)
            images = images * light.exp()
        matrix = drawn["colour_matrix"].flatten(0, 1)
        images = torch.baddbmm(matrix[..., 3:], matrix[..., :3], images.flatten(2), alpha=1 / 255)  # (2B, 3, HW)
        if self._gamma:
            images = images.clamp(0, 1) ** drawn["gamma"].reshape(-1, 1, 1)
        if self._noise is not None:
            length = images[0].numel()
            offsets = (drawn["noise_offset"].flatten() * (len(self._noise) - length)).long()
            noise = self._noise.unfold(0, length, 1).index_select(0, offsets).view_as(images)
            images = torch.addcmul(images, noise, drawn["noise"].reshape(-1, 1, 1))
        return images.clamp(0, 1).mul(255).view(*shape[:-2], height, width)


def _blur(images: Tensor, kernel: Tensor) -> Tensor:
    """Blur each image `(N, C, H, W)` with its own separable kernel `(N, taps)`; borders are replicated."""
    count, channels = images.shape[:2]
    weights = kernel.repeat_interleave(channels, 0)[:, None]  # (NC, 1, taps)
    flat = images.flatten(0, 1)[None]  # (1, NC, H, W)
    half = kernel.shape[1] // 2
    flat = F.conv2d(F.pad(flat, (half, half, 0, 0), "replicate"), weights[:, :, None], groups=count * channels)
    flat = F.conv2d(F.pad(flat, (0, 0, half, half), "replicate"), weights[..., None], groups=count * channels)
    return flat.view_as(images)
