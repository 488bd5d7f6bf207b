"""Flat scenes: a homography in place of the flow, where it explains the images as well.

A smooth surface, a long edge or a blur leave a flow free to slide. If what it matches well lies on one plane, or the
camera only turned, a homography says where the rest must be. It is taken where patches of the query agree with the
reference as well through it as through the flow; what moves on its own, or lies off the plane, keeps its flow.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..models.network import resize_image
from ..ops.homography import Matrix, depth, project, project_map, resizing
from ..ops.patches import CONTRAST, PATCH, box, patch_correlation
from ..ops.warp import inside_mask, pixel_grid, resize_flow, warp

LARGEST = 1024  # longer side at which images are compared, at most
STRONG = 30.0  # standard deviation from which on a patch says no more than others
ALIKE = 0.7  # correlation of patches that are matched well
MOST_POINTS, FEWEST_POINTS = 5000, 100  # to fit to
CLOSER = (1.0, 0.7)  # pixels from the last homography, of the points that the next is fitted to
NEAR = 1.5  # pixels from the homography that a point may be
PLANAR = 0.9  # share of what is matched well that must be within twice that,
EXPLAINED = 0.5  # and of the image that the homography must explain as well as the flow does
MARGIN = 0.05  # "as well": correlation that may be lost, around a pixel;
AROUND = 41  # pixels; twice as much at the pixel itself
OUTSIDE = 0.5  # sides of the query outside of it where a homography still means something


@torch.inference_mode()
def prefer_homography(reference: Tensor, query: Tensor, flow: Tensor) -> Tensor:
    """A flow, straightened where one homography explains most of the images as well.

    Args:
        reference: RGB image `(1, 3, H, W)` in [0, 255].
        query: RGB image `(1, 3, Hq, Wq)`.
        flow: `(1, 2, H, W)`; what is not finite stays so.

    Returns:
        Flow `(1, 2, H, W)`, the same where the scene is not planar.
    """
    first, second = _bounded(reference), _bounded(query)
    small = resize_flow(flow.float(), first.shape[2:], query_size=query.shape[2:], new_query_size=second.shape[2:])
    inside = inside_mask(small, second.shape[2:])
    alike, contrast = patch_correlation(first, warp(second, small, padding="border"))
    sure = inside & (contrast > CONTRAST) & (alike > ALIKE)
    grid = pixel_grid(first.shape[2], first.shape[3], device=flow.device)
    matrix = _fit(grid, grid + small, sure)
    if matrix is None:
        return flow
    straight = project_map(matrix, grid) - grid
    off = torch.linalg.vector_norm(straight - small, dim=1, keepdim=True)
    if (off[sure] < 2 * NEAR).float().mean() < PLANAR:
        return flow
    also, _ = patch_correlation(first, warp(second, straight, padding="border"))
    weight = contrast.clamp(max=STRONG) * inside
    loss = box(weight * (alike - also), AROUND) / box(weight, AROUND).clamp(min=1e-3)
    explained = (loss < MARGIN) & ((alike - also < 2 * MARGIN) | (contrast < CONTRAST))
    if explained.float().mean() < EXPLAINED:
        return flow
    # What the homography sees leave the query leaves it, unless the flow found it there.
    explained = torch.where(inside_mask(straight, second.shape[2:]), explained, alike < ALIKE)
    known = _near(grid + straight, second) & (depth(matrix, grid) > 0)
    share = box((explained & known).float(), PATCH)
    share = F.interpolate(share, flow.shape[2:], mode="bilinear", align_corners=False)
    to_full = resizing(second.shape[2:], query.shape[2:]) @ matrix @ resizing(reference.shape[2:], first.shape[2:])
    fine = pixel_grid(flow.shape[2], flow.shape[3], device=flow.device)
    through = project_map(to_full, fine) - fine
    return torch.where(flow.isfinite() & (share > 0), flow + share * (through - flow), flow)


def _bounded(image: Tensor) -> Tensor:
    height, width = image.shape[2:]
    scale = min(1.0, LARGEST / max(height, width))
    size = max(1, round(scale * height)), max(1, round(scale * width))
    return image.float() if size == (height, width) else resize_image(image.float(), size, published=False)


def _near(points: Tensor, image: Tensor) -> Tensor:
    """Whether points `(1, 2, h, w)` are in an image, or not far from it: `(1, 1, h, w)`."""
    (x, y), (height, width) = points.split(1, 1), image.shape[2:]
    beside = (x >= -OUTSIDE * width) & (x <= (1 + OUTSIDE) * width - 1)
    return beside & (y >= -OUTSIDE * height) & (y <= (1 + OUTSIDE) * height - 1)


def _fit(points: Tensor, targets: Tensor, sure: Tensor) -> Matrix | None:
    """The homography of most of the points that are sure, if they are enough."""
    import cv2

    places = sure.flatten().nonzero().flatten()
    places = places[:: max(1, len(places) // MOST_POINTS)]
    if len(places) < FEWEST_POINTS:
        return None
    starts, ends = (x.flatten(2)[0, :, places].mT.double().cpu().numpy() for x in (points, targets))
    matrix, _ = cv2.findHomography(starts, ends, cv2.USAC_MAGSAC, NEAR, maxIters=5000, confidence=0.999)
    for limit in CLOSER:  # what slid along by a little would pull it
        if matrix is None:
            return None
        close = np.linalg.norm(project(np.asarray(matrix, dtype=np.float64), starts) - ends, axis=1) < limit
        if close.sum() < FEWEST_POINTS:
            return None
        matrix, _ = cv2.findHomography(starts[close], ends[close], 0)
    return None if matrix is None or not np.isfinite(matrix).all() else np.asarray(matrix, dtype=np.float64)
