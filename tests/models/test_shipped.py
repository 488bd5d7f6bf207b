"""The weights that ship: complete, small, described, and right on the bundled pair."""

import json
import warnings

import numpy as np
import pytest
from safetensors import safe_open

import gocor
from gocor.models.registry import list_models
from gocor.models.weights import SHIPPED
from gocor.utils.defaults import MODEL
from tests.test_assets import ASSETS, true_flow

pytestmark = pytest.mark.long

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


# Median error in pixels, and the share of visible pixels within 5 pixels of the truth. BaseNet sees 256×256.
EXPECTED = {
    "recurrent-gocor": (0.6, 0.9),
    "glunet-gocor": (0.7, 0.85),
    "glunet": (1.5, 0.65),
    "basenet-gocor": (6, 0.45),
    "basenet": (12, 0.3),
}


@pytest.mark.parametrize("name", NAMES)
def test_they_match_the_bundled_pair(name):
    most, least = EXPECTED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = gocor.match(ASSETS / "reference.jpg", ASSETS / "query.jpg", name, device="cpu")
    flow, seen = true_flow()
    error = np.linalg.norm(result.flow.permute(1, 2, 0).numpy() - flow, axis=-1)[seen]
    assert np.median(error) < most
    assert (error <= 5).mean() > least
