"""Flat scenes: a homography in place of the flow, where it explains the images as well.

A smooth surface, a long edge or a blur leave a flow free to slide. If what it matches well lies on one plane, or the
camera only turned, a homography says where the rest must be. It is taken where patches of the query agree with the
reference as well through it as through the flow; what moves on its own, or lies off the plane, keeps its flow.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .models.network import resize_image
from .ops.homography import Matrix, depth, project, project_map, resizing
from .ops.patches import box, patch_correlation
from .ops.warp import pixel_grid, warp

SIDE = 1024  # images are compared at this size at most
CONTRAST = 3.0  # standard deviation of a patch that says something, of 255,
STRONG = 30.0  # and from which on it says no more
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
    shrink_first, shrink_second = (
        resizing(big.shape[2:], small.shape[2:]) for big, small in ((reference, first), (query, second))
    )
    grid, fine = (pixel_grid(x.shape[2], x.shape[3], device=flow.device) for x in (first, flow))
    targets = F.interpolate(fine + flow.float(), first.shape[2:], mode="bilinear", align_corners=False)
    targets = project_map(shrink_second, targets)
    inside = _inside(targets, second, 0.0)
    alike, contrast = patch_correlation(first, warp(second, targets - grid, padding="border"))
    sure = inside & (contrast > CONTRAST) & (alike > ALIKE)
    matrix = _fit(grid, targets, sure)
    if matrix is None:
        return flow
    straight = project_map(matrix, grid)
    off = torch.linalg.vector_norm(straight - targets, dim=1, keepdim=True)
    if (off[sure] < 2 * NEAR).float().mean() < PLANAR:
        return flow
    also, _ = patch_correlation(first, warp(second, straight - grid, padding="border"))
    weight = contrast.clamp(max=STRONG) * inside
    loss = box(weight * (alike - also), AROUND) / box(weight, AROUND).clamp(min=1e-3)
    explained = (loss < MARGIN) & ((alike - also < 2 * MARGIN) | (contrast < CONTRAST))
    if explained.float().mean() < EXPLAINED:
        return flow
    # What the homography sees leave the query leaves it, unless the flow found it there.
    explained = torch.where(_inside(straight, second, 0.0), explained, alike < ALIKE)
    known = _inside(straight, second, OUTSIDE) & (depth(matrix, grid) > 0)
    share = F.interpolate(box((explained & known).float(), 11), flow.shape[2:], mode="bilinear", align_corners=False)
    through = project_map(np.linalg.inv(shrink_second) @ matrix @ shrink_first, fine) - fine
    return torch.where(flow.isfinite() & (share > 0), flow + share * (through - flow), flow)


def _bounded(image: Tensor) -> Tensor:
    height, width = image.shape[2:]
    scale = min(1.0, SIDE / max(height, width))
    size = max(1, round(scale * height)), max(1, round(scale * width))
    return image.float() if size == (height, width) else resize_image(image.float(), size, published=False)


def _inside(points: Tensor, image: Tensor, margin: float) -> Tensor:
    """Whether points `(1, 2, h, w)` are in an image, or not farther out than a share of its sides: `(1, 1, h, w)`."""
    limits = []
    for x, side in zip(points.split(1, 1), (image.shape[3], image.shape[2]), strict=True):
        limits.append((x >= -margin * side) & (x <= (1 + margin) * side - 1))
    return limits[0] & limits[1]


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
