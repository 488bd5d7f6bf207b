"""Baselines that need no training, and networks as matchers.

A matcher takes two RGB images `(H, W, 3)`, uint8, which may differ in size, and returns the flow `(H, W, 2)` float32 on
the reference's grid: reference pixel + flow = query pixel, x first.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.datasets import homography_flow
from ..matching.api import match_tensors
from ..matching.images import to_batch
from ..matching.options import MatchOptions
from ..models.network import MatchingNetwork
from ..ops.warp import resize_flow
from ..utils.arrays import FlowField, Picture

Matcher = Callable[[Picture, Picture], FlowField]

SIFT_FEATURES, SIFT_RATIO, MIN_MATCHES = 8000, 0.8, 8


def identity(reference: Picture, query: Picture) -> FlowField:
    """Zero flow."""
    return np.zeros((*reference.shape[:2], 2), np.float32)


def dis(reference: Picture, query: Picture) -> FlowField:
    """OpenCV's dense inverse search (Kroeger et al., ECCV 2016), preset "medium"."""
    cv2 = _opencv()
    method = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    return _at_one_size(lambda a, b: method.calc(a, b, None), reference, query)


def farneback(reference: Picture, query: Picture) -> FlowField:
    """OpenCV's polynomial expansion (Farnebäck, SCIA 2003): 5 levels, windows of 21, 5 iterations."""
    cv2 = _opencv()
    return _at_one_size(
        lambda a, b: cv2.calcOpticalFlowFarneback(a, b, None, 0.5, 5, 21, 5, 7, 1.5, 0), reference, query
    )


def sift_homography(reference: Picture, query: Picture) -> FlowField:
    """A homography by MAGSAC++ from SIFT matches that pass the ratio test; zero flow if none is found."""
    cv2 = _opencv()
    sift = cv2.SIFT_create(SIFT_FEATURES)
    (points_a, words_a), (points_b, words_b) = (
        sift.detectAndCompute(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), None) for image in (reference, query)
    )
    if min(len(points_a), len(points_b)) < MIN_MATCHES:
        return identity(reference, query)
    nearest = (pair for pair in cv2.BFMatcher().knnMatch(words_a, words_b, 2) if len(pair) == 2)
    matches = [best for best, second in nearest if best.distance < SIFT_RATIO * second.distance]
    if len(matches) < MIN_MATCHES:
        return identity(reference, query)
    start = np.array([points_a[match.queryIdx].pt for match in matches], np.float32)
    end = np.array([points_b[match.trainIdx].pt for match in matches], np.float32)
    cv2.setRNGSeed(0)
    matrix, _ = cv2.findHomography(start, end, cv2.USAC_MAGSAC, 2.0, maxIters=20000, confidence=0.9999)
    if matrix is None or abs(matrix[2, 2]) < 1e-12:
        return identity(reference, query)
    return homography_flow(matrix, reference.shape[:2])[0].astype(np.float32)


BASELINES: dict[str, Matcher] = {
    "identity": identity,
    "dis": dis,
    "farneback": farneback,
    "sift-homography": sift_homography,
}


def network_matcher(network: MatchingNetwork, *, flips: bool = False, **options: Any) -> Matcher:
    """A network as a matcher that computes exactly the flow of `gocor.match` with the same options.

    Args:
        network: a network on any device. It is used in evaluation mode, and keeps the mode that it is in.
        flips: try mirrored images too, as on TSS, if the network can.
        **options: fields of `MatchOptions`. Alignment is off unless `align` is given, so that the network is measured.
    """
    chosen = match_options(options).resolve(network, flips=flips)

    def matcher(reference: Picture, query: Picture) -> FlowField:
        first, second = (to_batch([picture], network) for picture in (reference, query))
        flow = match_tensors(network, first, second, chosen, backward=False, flips=flips).forward
        return as_field(flow)

    return matcher


def match_options(options: Mapping[str, Any]) -> MatchOptions:
    """Options of matching in an evaluation: those of `gocor.match`, except that alignment is off by default."""
    return MatchOptions(**{"align": False, **options})


def as_field(flow: Tensor) -> FlowField:
    """Flow `(1, 2, H, W)` → `(H, W, 2)` float32."""
    return np.ascontiguousarray(flow[0].permute(1, 2, 0).float().cpu().numpy())


def _at_one_size(method: Callable[[Any, Any], Any], reference: Picture, query: Picture) -> FlowField:
    """Apply a method for grey images of one size: resize the query to the reference's size, and the flow back."""
    import cv2

    first, second = (cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in (reference, query))
    size, query_size = first.shape, second.shape
    if size == query_size:
        return np.asarray(method(first, second), np.float32)
    flow = method(first, cv2.resize(second, size[::-1], interpolation=cv2.INTER_AREA))
    flow = torch.from_numpy(np.asarray(flow, np.float32)).permute(2, 0, 1)[None]
    back = resize_flow(flow, size, query_size=size, new_query_size=query_size)
    return as_field(back)


def _opencv() -> Any:
    """OpenCV without its type hints, which lack half of what is used here."""
    import cv2

    return cv2
