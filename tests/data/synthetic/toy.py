"""Small smooth photos and simple objects."""

import cv2
import numpy as np

from gocor.data.io import write_image
from gocor.data.synthetic import ObjectStore, PhotoStore
from gocor.data.synthetic.objects import CutOut


def photo(height=96, width=128, seed=0, sigma=6.0):
    noise = np.random.default_rng(seed).uniform(0, 255, (height, width, 3)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), sigma)
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return np.rint(20 + 215 * smooth).astype(np.uint8)


def photo_store(folder, count=5, **options):
    """Photos of several sizes, some in portrait format."""
    for seed in range(count):
        size = [(96, 128), (150, 110), (120, 120)][seed % 3]
        write_image(folder / f"{seed}.png", photo(*size, seed=seed))
    return PhotoStore.open(folder, threads=1, **options)


def box(height, width, colour, edge=0):
    """A rectangle in one colour with premultiplied alpha, which fades out over `edge` pixels."""
    alpha = np.ones((height, width), np.float32)
    for i in range(edge):
        value = (i + 1) / (edge + 1)
        alpha[i], alpha[-1 - i] = np.minimum(alpha[i], value), np.minimum(alpha[-1 - i], value)
        alpha[:, i], alpha[:, -1 - i] = np.minimum(alpha[:, i], value), np.minimum(alpha[:, -1 - i], value)
    rgba = np.concatenate(
        [
            np.broadcast_to(np.array(colour, np.float32), (height, width, 3)),
            np.full((height, width, 1), 255, np.float32),
        ],
        -1,
    )
    return CutOut(np.rint(rgba * alpha[..., None]).astype(np.uint8), 1.0)


def object_store():
    return ObjectStore(
        [box(24, 30, (250, 10, 10)), box(40, 16, (10, 250, 10), edge=2), box(20, 20, (10, 10, 250), edge=1)]
    )
