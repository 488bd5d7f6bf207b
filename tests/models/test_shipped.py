"""The weights that ship: complete, small, described, and right on the bundled pair."""

import json
import warnings

import cv2
import numpy as np
import pytest
from safetensors import safe_open

import gocor
from gocor.models.registry import list_models
from gocor.models.weights import SHIPPED
from gocor.utils.defaults import MODEL
from tests.test_assets import ASSETS, true_homography

NAMES = sorted(path.stem for path in SHIPPED.glob("*.safetensors") if path.stem != "vgg16")


def test_the_default_model_ships_and_all_are_small():
    assert MODEL in NAMES
    assert set(NAMES) <= set(list_models())
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 95 * 2**20


@pytest.mark.parametrize("name", NAMES)
def test_they_say_what_they_are(name):
    with safe_open(SHIPPED / f"{name}.safetensors", "pt") as file:
        metadata = file.metadata()
    assert metadata["model"] == name
    assert metadata["licence"].startswith("Apache-2.0")
    assert (SHIPPED / f"{name}.md").read_text().startswith(f"# {name}\n")
    assert f"`{name}.safetensors`" in (SHIPPED / "README.md").read_text()
    assert metadata["command"].startswith("gocor train ")
    assert json.loads(metadata["recipe"])["model"] == name


# Mean error in pixels, and the share of pixels within 5, of images of 400×600. BaseNet sees 256×256.
EXPECTED = {
    "recurrent-gocor": (0.5, 0.99),
    "glunet-gocor": (0.7, 0.97),
    "glunet": (2, 0.9),
    "basenet-gocor": (3, 0.85),
    "basenet": (5, 0.7),
}


@pytest.mark.parametrize("name", NAMES)
def test_they_match_the_bundled_pair(name):
    most, least = EXPECTED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = gocor.match(ASSETS / "reference.jpg", ASSETS / "query.jpg", name, device="cpu")
    flow = np.asarray(result.flow, dtype=np.float64).transpose(1, 2, 0)
    height, width = flow.shape[:2]
    pixels = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).astype(np.float64)
    target = cv2.perspectiveTransform(pixels.reshape(-1, 1, 2), true_homography()).reshape(height, width, 2)
    seen = ((target >= 0) & (target <= (519, 419))).all(-1)
    error = np.linalg.norm(pixels + flow - target, axis=-1)[seen]
    assert error.mean() < most
    assert (error <= 5).mean() > least
