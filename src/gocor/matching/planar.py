"""Flat scenes: a homography replaces the flow where it explains the images equally well.

On smooth surfaces, along edges and in blurred regions, a flow is free to drift. If the well-matched pixels lie on one
plane, or the camera only rotated, a homography determines the others. It replaces the flow where the patches of the
query that it finds agree with the reference equally well. Objects that move on their own, or are off the plane, keep
their flow.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..models.resizing import resize_image
from ..ops.homography import Matrix, depth, project, project_map, resizing
from ..ops.patches import CONTRAST, PATCH, box, patch_correlation
from ..ops.warp import inside_mask, pixel_grid, resize_flow, warp

FITS = 4  # homographies that are fitted at the same time, while a GPU computes


@dataclass(frozen=True, kw_only=True)
class PlanarSettings:
    """Settings of `prefer_homography`. Pixels are those of the images on which patches are compared."""

    max_side: int = 1024  # Upper bound of the longer side of those images, in pixels.
    min_correlation: float = 0.7  # Correlation of patches, in [-1, 1], above which a pixel is well matched.
    max_points: int = 5000  # Well-matched pixels that the homography is fitted to, at most.
    min_points: int = 100  # Well-matched pixels that the fit needs.
    inlier_distance: float = 1.5  # Distance in pixels between flow and homography of an inlier of the robust fit.
    refit_distances: tuple[float, ...] = (1.0, 0.7)  # The same for the least-squares fits that follow.
    min_planar_share: float = 0.9  # Share of the well-matched pixels that must be within twice `inlier_distance`.
    min_explained_share: float = 0.5  # Share of the image that the homography must explain as well as the flow.
    max_correlation_loss: float = 0.05  # Mean loss of correlation around a pixel; twice as much at the pixel itself.
    loss_window: int = 41  # Side of the window of that mean, in pixels.
    max_contrast: float = 30.0  # Standard deviation of a patch, of 255, at which its weight in that mean saturates.
    clear_correlation: float = 0.85  # Correlation of patches above which the flow of a pixel is taken as exact, and
    clear_contrast: float = 8.0  # standard deviation of its patch above which it is.
    max_deviation: float = 0.3  # Distance in pixels between such a flow and the homography, averaged as a vector over
    deviation_window: int = 81  # windows of this side: the median over these pixels. A curved surface has more.
    max_outside: float = 0.5  # Distance from the query where a homography is trusted, in fractions of its sides.


DEFAULT_PLANAR = PlanarSettings()


class Planar(NamedTuple):
    """A flow that a homography may have replaced.

    Attributes:
        flow: `(B, 2, H, W)`.
        belief: where the homography replaced the flow, the share of well-matched pixels that the homography explains;
            0 elsewhere. `(B, 1, H, W)`.
    """

    flow: Tensor
    belief: Tensor


@torch.inference_mode()
def prefer_homography(
    reference: Tensor, query: Tensor, flow: Tensor, settings: PlanarSettings = DEFAULT_PLANAR
) -> Planar:
    """Replace a flow by a homography where that explains the images equally well.

    Args:
        reference: RGB images `(B, 3, H, W)` in [0, 255].
        query: RGB images `(B, 3, Hq, Wq)`.
        flow: `(B, 2, H, W)`; infinite values stay.
        settings: thresholds.

    Returns:
        See `Planar`. The flow is unchanged for scenes that are not flat.
    """
    samples = list(zip(reference.split(1), query.split(1), flow.split(1), strict=True))
    if not flow.is_cuda or len(samples) == 1:
        return _joined([_prefer_homography(*sample, settings) for sample in samples])
    # The GPU computes for one pair while the CPU fits the homography of another.
    with ThreadPoolExecutor(min(len(samples), FITS)) as threads:
        return _joined(list(threads.map(partial(_prefer_homography, settings=settings), *zip(*samples, strict=True))))


def _joined(found: Sequence[Planar]) -> Planar:
    return Planar(*(torch.cat(maps) for maps in zip(*found, strict=True)))


@torch.inference_mode()  # each thread has its own mode
def _prefer_homography(reference: Tensor, query: Tensor, flow: Tensor, settings: PlanarSettings) -> Planar:
    """`prefer_homography` for one sample."""
    unchanged = Planar(flow, flow.new_zeros(len(flow), 1, *flow.shape[2:]))
    first, second = _bounded(reference, settings.max_side), _bounded(query, settings.max_side)
    small = resize_flow(flow.float(), first.shape[2:], query_size=query.shape[2:], new_query_size=second.shape[2:])
    inside = inside_mask(small, second.shape[2:])
    correlation, contrast = patch_correlation(first, warp(second, small, padding="border"))
    matched = inside & (contrast > CONTRAST) & (correlation > settings.min_correlation)
    matrix = _fit(small, matched, settings)
    if matrix is None:
        return unchanged
    grid = pixel_grid(first.shape[2], first.shape[3], device=flow.device)
    planar = project_map(matrix, grid) - grid
    distance = torch.linalg.vector_norm(planar - small, dim=1, keepdim=True)
    planar_share = (distance[matched] < 2 * settings.inlier_distance).to(flow.dtype).mean()
    if planar_share < settings.min_planar_share:
        return unchanged
    clear = inside & (contrast > settings.clear_contrast) & (correlation > settings.clear_correlation)
    clear = clear & (distance < 2 * settings.inlier_distance)
    if _deviation(planar - small, clear, settings.deviation_window) > settings.max_deviation:
        return unchanged
    planar_correlation, _ = patch_correlation(first, warp(second, planar, padding="border"))
    loss = correlation - planar_correlation
    weight = contrast.clamp(max=settings.max_contrast) * inside
    window = settings.loss_window
    mean_loss = box(weight * loss, window) / box(weight, window).clamp(min=1e-3)
    limit = settings.max_correlation_loss
    explained = (mean_loss < limit) & ((loss < 2 * limit) | (contrast < CONTRAST))
    if explained.float().mean() < settings.min_explained_share:
        return unchanged
    # Where the homography leaves the query, it is preferred unless the flow found a good match.
    poorly_matched = correlation < settings.min_correlation
    explained = torch.where(inside_mask(planar, second.shape[2:]), explained, poorly_matched)
    trusted = _is_near(grid + planar, second, settings.max_outside) & (depth(matrix, grid) > 0)
    share = box((explained & trusted).float(), PATCH)
    share = F.interpolate(share, flow.shape[2:], mode="bilinear", align_corners=False)
    full = resizing(second.shape[2:], query.shape[2:]) @ matrix @ resizing(reference.shape[2:], first.shape[2:])
    fine = pixel_grid(flow.shape[2], flow.shape[3], device=flow.device)
    replacement = project_map(full, fine) - fine
    replaced = flow.isfinite().all(1, keepdim=True) & (share > 0)
    belief = torch.where(replaced, share * planar_share, 0.0)
    return Planar(torch.where(replaced, flow + share * (replacement - flow), flow), belief)


def _deviation(difference: Tensor, clear: Tensor, window: int) -> float:
    """Length of the mean difference `(1, 2, h, w)` of the clear pixels around a clear pixel: the median over them.

    The mean over a window removes the noise of a flow, and keeps a systematic deviation from it.
    """
    if not clear.any():
        return 0.0
    weight = clear.to(difference.dtype)
    mean = box(weight * difference, window) / box(weight, window).clamp(min=1e-6)
    return float(torch.linalg.vector_norm(mean, dim=1, keepdim=True)[clear].median())


def _bounded(image: Tensor, max_side: int) -> Tensor:
    height, width = image.shape[2:]
    scale = min(1.0, max_side / max(height, width))
    size = max(1, round(scale * height)), max(1, round(scale * width))
    return image.float() if size == (height, width) else resize_image(image.float(), size, published=False)


def _is_near(points: Tensor, image: Tensor, outside: float) -> Tensor:
    """Whether points `(1, 2, h, w)` are inside an image, or outside by at most fractions of its sides."""
    (x, y), (height, width) = points.split(1, 1), image.shape[2:]
    near = (x >= -outside * width) & (x <= (1 + outside) * width - 1)
    return near & (y >= -outside * height) & (y <= (1 + outside) * height - 1)


def _fit(flow: Tensor, matched: Tensor, settings: PlanarSettings) -> Matrix | None:
    """The homography of most well-matched pixels of a flow; `None` if there are too few of them."""
    import cv2

    places = matched.flatten().nonzero().flatten()
    places = places[:: max(1, len(places) // settings.max_points)]
    if len(places) < settings.min_points:
        return None
    grid = pixel_grid(flow.shape[2], flow.shape[3], device=flow.device)
    starts, ends = (x.flatten(2)[0, :, places].mT.double().cpu().numpy() for x in (grid, grid + flow))
    matrix, _ = cv2.findHomography(
        starts, ends, cv2.USAC_MAGSAC, settings.inlier_distance, maxIters=5000, confidence=0.999
    )
    for limit in settings.refit_distances:  # The robust fit is biased by pixels whose flow drifts a little.
        if matrix is None:
            return None
        close = np.linalg.norm(project(np.asarray(matrix, np.float64), starts) - ends, axis=1) < limit
        if close.sum() < settings.min_points:
            return None
        matrix, _ = cv2.findHomography(starts[close], ends[close], 0)
    return None if matrix is None or not np.isfinite(matrix).all() else np.asarray(matrix, np.float64)
