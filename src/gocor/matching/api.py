"""Two photographs in, dense matches out."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.io import read_image, to_rgb
from ..models.network import MatchingNetwork
from ..models.weights import choose_device, load_model
from ..ops.warp import forward_backward_error, inside_mask, occlusion_mask, warp
from ..utils.checks import check_count
from ..utils.defaults import MAX_SIZE
from .alignment import match_wide

Picture = NDArray[np.uint8]
MIN_POINTS = {"homography": 4, "fundamental": 8}


@dataclass(frozen=True)
class MatchResult:
    """Dense matches of one pair, at the reference's resolution.

    Attributes:
        reference: RGB picture `(H, W, 3)`, uint8.
        query: RGB picture `(Hq, Wq, 3)`, uint8.
        flow: `(2, H, W)` float32: reference pixel + flow = query pixel, channel 0 is x, in the query's own pixels.
        confidence: `(H, W)` float32 in [0, 1]: 1/(1 + e), where going to the query and back ends e pixels (of the size
            that the network worked at) from home; 0 where the match is outside the query.
        occlusion: `(H, W)` bool: the query does not show this pixel, by the forward–backward check.
        model: name of the network.
    """

    reference: Picture = field(repr=False)
    query: Picture = field(repr=False)
    flow: Tensor = field(repr=False)
    confidence: Tensor = field(repr=False)
    occlusion: Tensor = field(repr=False)
    model: str = ""

    def matches(self, max_points: int = 5000, min_confidence: float = 0.5) -> NDArray[np.float32]:
        """The most confident matches, spread over the image, best first: rows x, y, x′, y′, score.

        The reference is divided into cells, as many as points are asked for; each gives its most confident pixel, if it
        reaches `min_confidence` and its match is inside the query.
        """
        check_count("max_points", max_points, minimum=1)
        if not 0 <= min_confidence <= 1:
            raise ValueError(f"min_confidence must be between 0 and 1, got {min_confidence}")
        height, width = self.confidence.shape
        inside = inside_mask(self.flow[None], self.query.shape[:2])[0, 0].numpy()
        score = np.where(inside, self.confidence.numpy(), -1)
        side = max(1, int(np.ceil(np.sqrt(height * width / max_points))))
        rows, columns = -(-height // side), -(-width // side)
        padded = np.full((rows * side, columns * side), -1, np.float32)
        padded[:height, :width] = score
        cells = padded.reshape(rows, side, columns, side).swapaxes(1, 2).reshape(rows * columns, side * side)
        best = cells.argmax(1)
        y = np.arange(rows).repeat(columns) * side + best // side
        x = np.tile(np.arange(columns), rows) * side + best % side
        value = cells[np.arange(len(best)), best]
        order = np.argsort(-value, kind="stable")
        order = order[value[order] >= max(min_confidence, 0)][:max_points]
        x, y, value = x[order], y[order], value[order]
        dx, dy = self.flow.numpy()[:, y, x]
        return np.stack([x, y, x + dx, y + dy, value], 1).astype(np.float32)

    def warp(self) -> Picture:
        """The query seen from the reference, RGB `(H, W, 3)`, black where it shows nothing."""
        query = torch.from_numpy(self.query).permute(2, 0, 1)[None].float()
        return warp(query, self.flow[None])[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy()

    def homography(
        self, threshold: float = 3.0, max_points: int = 5000, min_confidence: float = 0.5
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Homography reference → query from the confident matches, by MAGSAC++.

        Args:
            threshold: largest error of an inlier in query pixels.
            max_points: see `matches`.
            min_confidence: see `matches`.

        Returns:
            The 3×3 matrix and, for each row of `matches(max_points, min_confidence)`, whether it is an inlier.
        """
        import cv2

        return self._robust(
            "homography",
            lambda a, b: cv2.findHomography(a, b, cv2.USAC_MAGSAC, threshold, maxIters=10000, confidence=0.9999),
            max_points,
            min_confidence,
        )

    def fundamental(
        self, threshold: float = 1.0, max_points: int = 5000, min_confidence: float = 0.5
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Fundamental matrix with x′ᵀFx = 0 from the confident matches, by MAGSAC++; arguments as in `homography`."""
        import cv2

        return self._robust(
            "fundamental",
            lambda a, b: cv2.findFundamentalMat(a, b, cv2.USAC_MAGSAC, threshold, 0.9999, 10000),
            max_points,
            min_confidence,
        )

    def save(self, folder: str | os.PathLike[str], *, formats: Sequence[str] = ("flo",)) -> list[str]:
        """Write flow, pictures and matches to a folder; see `gocor.matching.save_result`."""
        from .files import save_result

        return [str(path) for path in save_result(self, folder, formats=formats)]

    def _robust(
        self, what: str, estimate: Callable[..., Any], max_points: int, min_confidence: float
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        points = self.matches(max_points, min_confidence)
        if len(points) < MIN_POINTS[what]:
            raise ValueError(
                f"a {what} needs {MIN_POINTS[what]} matches, there are {len(points)} with confidence ≥ {min_confidence}"
            )
        matrix, inliers = estimate(points[:, :2].astype(np.float64), points[:, 2:4].astype(np.float64))
        if matrix is None or matrix.shape != (3, 3):
            raise ValueError(f"no {what} fits the {len(points)} matches")
        return matrix, inliers.ravel().astype(bool)


def match(
    reference: Any,
    query: Any,
    model: str | MatchingNetwork = "glunet-gocor",
    *,
    weights: str | os.PathLike[str] | None = "default",
    device: str | torch.device = "auto",
    iters_local: int | None = None,
    iters_global: int | None = None,
    min_size: int | None = None,
    max_size: int | None = MAX_SIZE,
    align: bool | None = None,
    batch_size: int = 4,
) -> Any:
    """Dense matches between two images, or between many pairs.

    Args:
        reference: a path, PIL image, array (H×W, H×W×1/3/4; uint8, uint16, float in [0, 1]) or tensor (C×H×W; uint8 or
            float in [0, 1]), or a list of those.
        query: the same, of any other size; a list of the same length where `reference` is one.
        model: a name of `list_models()`, or a network.
        weights: see `load_model`; only for a network by name.
        device: see `load_model`; only for a network by name.
        iters_local: iterations of local GOCor layers, in place of their own.
        iters_global: iterations of the global GOCor layer, in place of its own.
        min_size: lower bound of the longer side that the network works at, in place of its own; 0 for none. Enlarging
            small images makes their flow finer, and takes longer.
        max_size: upper bound of the same, `None` for the images' own size. Memory
            grows with its square; the flow is returned at the reference's own resolution whatever it is.
        align: bring images of a wide baseline closer first, and straighten the flow of flat scenes, see
            `gocor.alignment` and `gocor.planar`; by default where the network can.
        batch_size: pairs of equal sizes that are matched at once.

    Returns:
        A `MatchResult`, or a list of them.
    """
    many = isinstance(reference, (list, tuple))
    if many != isinstance(query, (list, tuple)):
        raise TypeError("reference and query must both be one image, or both be lists of images")
    pairs = list(zip(reference, query, strict=True)) if many else [(reference, query)]
    check_count("batch_size", batch_size, minimum=1)
    network = model if isinstance(model, MatchingNetwork) else load_model(model, weights, device=choose_device(device))
    options = {"iters_local": iters_local, "iters_global": iters_global, "min_size": min_size, "max_size": max_size}
    results = list(match_stream(pairs, network, batch_size=batch_size, align=align, **options))
    return results if many else results[0]


def match_stream(
    pairs: Iterable[tuple[Any, Any]], network: MatchingNetwork, *, batch_size: int = 4, **options: Any
) -> Iterator[MatchResult]:
    """Matches of pairs, in their order, read when their turn comes; neighbours of equal sizes share a batch."""
    batch: list[tuple[Picture, Picture]] = []
    for pair in pairs:
        loaded = as_picture(pair[0]), as_picture(pair[1])
        same = batch and all(a.shape == b.shape for a, b in zip(loaded, batch[0], strict=True))
        if batch and (not same or len(batch) == batch_size):
            yield from _match_batch(batch, network, **options)
            batch = []
        batch.append(loaded)
    if batch:
        yield from _match_batch(batch, network, **options)


def as_picture(image: Any) -> Picture:
    """Anything that `match` takes → RGB `(H, W, 3)` uint8."""
    if isinstance(image, (str, os.PathLike)):
        return read_image(image)
    if isinstance(image, Tensor):
        if image.dim() == 4 and len(image) == 1:
            image = image[0]
        if image.dim() == 3:
            image = image.permute(1, 2, 0)
        image = image.detach().cpu()
        return to_rgb((image.float() if image.is_floating_point() else image).numpy())
    if isinstance(image, np.ndarray):
        return to_rgb(image)
    if hasattr(image, "__array_interface__"):  # a PIL image
        if getattr(image, "mode", "RGB") in ("P", "CMYK", "LAB", "HSV", "YCbCr", "PA"):
            image = image.convert("RGBA" if "transparency" in image.info or image.mode == "PA" else "RGB")
        return to_rgb(np.asarray(image))
    raise TypeError(f"an image must be a path, a PIL image, an array or a tensor, got {type(image).__name__}")


@torch.inference_mode()
def _match_batch(
    batch: list[tuple[Picture, Picture]],
    network: MatchingNetwork,
    *,
    iters_local: int | None = None,
    iters_global: int | None = None,
    min_size: int | None = None,
    max_size: int | None = MAX_SIZE,
    align: bool | None = None,
) -> list[MatchResult]:
    """Match pairs that all have the same two sizes."""
    if align is None:
        align = network.can_align
    parameter = next(network.parameters())
    reference, query = (
        torch.stack([torch.from_numpy(pair[i]) for pair in batch])
        .to(parameter.device)
        .permute(0, 3, 1, 2)
        .to(parameter.dtype)
        for i in (0, 1)
    )
    options: dict[str, Any] = {
        "iters_local": iters_local,
        "iters_global": iters_global,
        "min_size": min_size,
        "max_size": max_size,
    }
    training = network.training
    network.eval()
    try:
        if align:
            forward, backward = match_wide(network, reference, query, **options)
        else:
            forward, backward = network(reference, query, **options), network(query, reference, **options)
    finally:
        network.train(training)
    confidence, occlusion = _certainty(forward, backward, max_size)
    return [
        MatchResult(
            reference=pair[0],
            query=pair[1],
            flow=forward[i].float().cpu().clone(),
            confidence=confidence[i, 0].cpu().clone(),
            occlusion=occlusion[i, 0].cpu().clone(),
            model=network.name,
        )
        for i, pair in enumerate(batch)
    ]


def _certainty(forward: Tensor, backward: Tensor, max_size: int | None) -> tuple[Tensor, Tensor]:
    """Confidence and occlusion, `(B, 1, H, W)`, in pixels of the size that the network worked at."""
    longest = max(forward.shape[2:])
    scale = min(1.0, max_size / longest) if max_size is not None else 1.0
    error = scale * forward_backward_error(forward, backward).float()
    occlusion = occlusion_mask(forward, backward, absolute=0.5 / scale**2)
    return 1 / (1 + error), occlusion
