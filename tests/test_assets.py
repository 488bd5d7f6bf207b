"""The bundled pictures agree with the scene that they show, and with their true matches."""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch

import gocor
from gocor.data.datasets import open_dataset
from gocor.data.io import read_image
from gocor.doctor.checks import true_points
from gocor.ops import warp

ASSETS = Path(gocor.__file__).parent / "assets"
PHOTOS = Path(__file__).parent / "photos"  # one photograph from two sides, for tests of flat scenes
EXAMPLES = Path(__file__).parents[1] / "examples"


@cache
def true_flow():
    """Flow `(H, W, 2)` of the bundled pair from the geometry of its scene, and the pixels that both views show."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        import courtyard
    finally:
        sys.path.remove(str(EXAMPLES))
    return courtyard.true_flow(courtyard.SCENE, *courtyard.PAIRS["views"])


def test_the_query_warped_by_the_true_flow_is_the_reference():
    flow, seen = true_flow()
    reference, query = read_image(ASSETS / "reference.jpg"), read_image(ASSETS / "query.jpg")
    assert reference.shape == query.shape == (*seen.shape, 3) == (480, 640, 3)
    assert 0.6 < seen.mean() < 0.9
    warped = warp(torch.from_numpy(query).permute(2, 0, 1)[None].float(), torch.from_numpy(flow).permute(2, 0, 1)[None])
    warped = warped[0].permute(1, 2, 0).numpy()
    assert np.corrcoef(warped[seen].ravel(), reference[seen].ravel())[0, 1] > 0.9
    assert np.corrcoef(query[seen].ravel(), reference[seen].ravel())[0, 1] < 0.6


def test_the_true_points_are_those_of_the_scene():
    flow, seen = true_flow()
    x, y, x_query, y_query = true_points().T
    rows = y.astype(int), x.astype(int)
    assert len(x) == 400
    assert seen[rows].all()
    np.testing.assert_allclose(np.stack([x, y], -1) + flow[rows], np.stack([x_query, y_query], -1), atol=0.02)


def test_the_pair_is_a_data_set():
    (pair,) = open_dataset("manifest", ASSETS / "pair.csv")
    assert pair.name == "courtyard"
    assert pair.reference.shape == (480, 640, 3)


def test_the_origin_of_every_photograph_is_written_down():
    origin = (ASSETS / "ORIGIN.md").read_text(encoding="utf-8")
    true_flow()
    for file in sys.modules["courtyard"].PHOTOS.values():
        (row,) = [line for line in origin.splitlines() if line.startswith("|") and f"`{file}`" in line]
        assert "CC0" in row or "public domain" in row
