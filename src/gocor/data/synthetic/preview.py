"""A picture that shows synthetic pairs."""

import numpy as np
import torch

from ...ops.warp import warp
from ...utils.arrays import Picture
from ...viz.colors import flow_to_color
from ...viz.drawing import picture_of
from .batch import PairBatch

GAP = 6  # pixels between pictures
HEADER = 26  # pixels above the first row, for the titles
WHITE = 255
COLUMNS = ("reference", "query", "query warped", "flow", "masks")
VALID, OCCLUDED, NEITHER = (90, 200, 120), (235, 120, 40), (60, 60, 60)


def draw_sheet(batch: PairBatch) -> Picture:
    """Draw one row per pair: reference, query, query warped by the flow, flow in colours, and masks.

    The warped query is grey where the flow is not valid. Masks are drawn over the reference: valid pixels are green,
    occluded pixels orange; all others (outside of the query or of the photo, or mixed edges) are dark.
    """
    import cv2

    warped = torch.where(batch.valid, warp(batch.query, batch.flow, padding="border"), 128.0)
    height, width = batch.reference.shape[-2:]
    sheet = np.full((HEADER + len(batch) * (height + GAP), GAP + len(COLUMNS) * (width + GAP), 3), WHITE, np.uint8)
    for column, title in enumerate(COLUMNS):
        at = (GAP + column * (width + GAP), HEADER - 8)
        cv2.putText(sheet, title, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 0), 1, cv2.LINE_AA)
    for row in range(len(batch)):
        reference = picture_of(batch.reference[row])
        cells = (
            reference,
            picture_of(batch.query[row]),
            picture_of(warped[row]),
            flow_to_color(batch.flow[row]),
            _masks(reference, batch.valid[row, 0], batch.occluded[row, 0]),
        )
        top = HEADER + row * (height + GAP)
        for column, cell in enumerate(cells):
            left = GAP + column * (width + GAP)
            sheet[top : top + height, left : left + width] = cell
    return sheet


def _masks(reference: Picture, valid: torch.Tensor, occluded: torch.Tensor) -> Picture:
    colours = np.where(
        valid.cpu().numpy()[..., None], VALID, np.where(occluded.cpu().numpy()[..., None], OCCLUDED, NEITHER)
    )
    grey = reference.mean(-1, keepdims=True)
    return np.asarray((0.55 * colours + 0.45 * grey).astype(np.uint8))
