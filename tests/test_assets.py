"""The bundled pictures agree with ORIGIN.md."""

import re
from pathlib import Path

import cv2
import numpy as np
import torch

import gocor
from gocor.data.io import read_image
from gocor.ops import inside_mask, warp

ASSETS = Path(gocor.__file__).parent / "assets"


def true_homography():
    """From the reference to the query, by the corners in ORIGIN.md."""
    points = re.findall(r"\((−?\d+), (−?\d+)\)", (ASSETS / "ORIGIN.md").read_text())
    points = [(float(x.replace("−", "-")), float(y.replace("−", "-"))) for x, y in points]
    return cv2.getPerspectiveTransform(*np.array([points[:4], points[4:8]], np.float32))


def test_the_homography_of_origin_md_maps_the_reference_to_the_query():
    assert "CC0 by the photographer" in (ASSETS / "ORIGIN.md").read_text()
    homography = true_homography()
    reference, query = read_image(ASSETS / "reference.jpg"), read_image(ASSETS / "query.jpg")
    assert reference.shape == (400, 600, 3)
    assert query.shape == (420, 520, 3)
    y, x = np.mgrid[:400, :600].astype(float)
    to = np.stack([x, y, np.ones_like(x)], -1) @ homography.T
    flow = torch.from_numpy(to[..., :2] / to[..., 2:] - np.stack([x, y], -1)).permute(2, 0, 1)[None].float()
    warped = warp(torch.from_numpy(query).permute(2, 0, 1)[None].float(), flow)[0].permute(1, 2, 0).numpy()
    seen = inside_mask(flow, query.shape[:2])[0, 0].numpy()
    assert seen.mean() > 0.5
    correlation = np.corrcoef(warped[seen].ravel(), reference[seen].ravel())[0, 1]
    assert correlation > 0.97
