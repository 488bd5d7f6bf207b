"""Views of the courtyard of `examples/`, whose cameras, pictures and matches are known."""

import sys
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import torch

from gocor.matching.result import MatchResult

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from courtyard import PHOTOS, SCENE
from raytracer import Camera, render, trace, true_flow

SIZE = (120, 160)


def camera(share, size=SIZE):
    """A camera on a curved path through the courtyard, from 0 at its begin to 1 at its end."""
    x, y, z = -2.2 + 4.4 * share, -1.6 - 0.45 * np.sin(3 * np.pi * share), 0.3 + 0.7 * np.cos(2 * np.pi * share)
    return Camera((x, y, z), (-0.05 + 0.3 * np.sin(5 * share), -0.95, 6), size=size, view=58)


def camera_matrix(view):
    """The matrix of a camera; centres of pixels are at integers."""
    height, width = view.size
    return np.array([[view.focal, 0, (width - 1) / 2], [0, view.focal, (height - 1) / 2], [0, 0, 1]])


def textures():
    """Blobs in place of the photographs, which do not ship."""
    generator = np.random.default_rng(0)
    noise = {name: generator.random((64, 64, 3), np.float32) for name in PHOTOS}
    return {name: cv2.GaussianBlur(picture, (0, 0), 1.5) * 2 - 0.5 for name, picture in noise.items()}


@cache
def picture(share):
    return render(SCENE, camera(share), textures(), samples=1)


@cache
def flow(first, second):
    """Flow `(2, H, W)` between two places of the path, and which pixels both show."""
    found, seen = true_flow(SCENE, camera(first), camera(second))
    return torch.from_numpy(found.transpose(2, 0, 1).copy()), torch.from_numpy(seen)


def exact_match(first, second):
    """The result that a perfect network would give for two places of the path."""
    found, seen = flow(first, second)
    return MatchResult(picture(first), picture(second), found, seen.float(), ~seen, "exact")


def depth_of(share):
    """Distance from the camera to what each pixel shows, `(H, W)`."""
    height, width = SIZE
    y, x = np.mgrid[:height, :width].astype(np.float32).reshape(2, -1)
    return trace(SCENE, *camera(share).rays(x, y))[0].reshape(height, width)
