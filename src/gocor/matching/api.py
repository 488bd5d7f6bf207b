"""Match two images, or many pairs of images."""

import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ..models.evaluation_view import Precision, in_evaluation_mode, in_precision
from ..models.network import MatchingNetwork
from ..models.outputs import Prediction
from ..models.weights import choose_device, load_model
from ..utils.arrays import Picture
from ..utils.checks import check_count
from ..utils.defaults import MAX_SIZE, MODEL
from ..utils.errors import InputError, InputTypeError
from .alignment import match_wide_baseline
from .certainty import Matched, certainty
from .features import FeatureCache, Images
from .images import ImageLike, as_picture, to_batch
from .options import DEFAULT_OPTIONS, MatchOptions
from .result import MatchResult
from .second_look import predict_twice

LOG = logging.getLogger("gocor.matching")
"""Reports at level INFO what matching is doing: reading, aligning, matching, writing."""


# A path is a sequence of strings too, so both signatures fit it. The first one counts.
@overload
def match(  # type: ignore[overload-overlap]
    reference: ImageLike,
    query: ImageLike,
    model: str | MatchingNetwork = ...,
    *,
    weights: str | os.PathLike[str] | None = ...,
    device: str | torch.device = ...,
    iters_local: int | None = ...,
    iters_global: int | None = ...,
    updates: int | None = ...,
    min_size: int | None = ...,
    max_size: int | None = ...,
    align: bool | None = ...,
    confidence: Literal["learnt", "consistency"] | None = ...,
    precision: Precision | None = ...,
    second_look: bool | None = ...,
    fast: bool = ...,
    batch_size: int = ...,
) -> MatchResult: ...


@overload
def match(
    reference: Sequence[ImageLike],
    query: Sequence[ImageLike],
    model: str | MatchingNetwork = ...,
    *,
    weights: str | os.PathLike[str] | None = ...,
    device: str | torch.device = ...,
    iters_local: int | None = ...,
    iters_global: int | None = ...,
    updates: int | None = ...,
    min_size: int | None = ...,
    max_size: int | None = ...,
    align: bool | None = ...,
    confidence: Literal["learnt", "consistency"] | None = ...,
    precision: Precision | None = ...,
    second_look: bool | None = ...,
    fast: bool = ...,
    batch_size: int = ...,
) -> list[MatchResult]: ...


def match(
    reference: ImageLike | Sequence[ImageLike],
    query: ImageLike | Sequence[ImageLike],
    model: str | MatchingNetwork = MODEL,
    *,
    weights: str | os.PathLike[str] | None = "default",
    device: str | torch.device = "auto",
    iters_local: int | None = None,
    iters_global: int | None = None,
    updates: int | None = None,
    min_size: int | None = None,
    max_size: int | None = MAX_SIZE,
    align: bool | None = None,
    confidence: Literal["learnt", "consistency"] | None = None,
    precision: Precision | None = None,
    second_look: bool | None = None,
    fast: bool = False,
    batch_size: int = 4,
) -> MatchResult | list[MatchResult]:
    """Dense matches between two images, or between many pairs of images.

    Args:
        reference: a path, PIL image, array (H×W, H×W×1/3/4; uint8, uint16, float in [0, 1]) or tensor (C×H×W; uint8 or
            float in [0, 1]), or a list of those. NaN becomes 0; infinite values are an error.
        query: likewise, of any size; a list of the same length if `reference` is a list.
        model: a name of `list_models()`, or a network.
        weights: see `load_model`; only for a network given by name.
        device: see `load_model`; only for a network given by name.
        iters_local: number of iterations of the local GOCor layers; `None` for the layers' own.
        iters_global: number of iterations of the global GOCor layer; `None` for the layer's own.
        updates: largest number of updates of a recurrent network; fewer take less time; `None` for its own.
        min_size: lower bound of the longer side that the network works at; 0 for none, `None` for the network's own.
            Enlarging small images makes their flow finer and takes longer.
        max_size: upper bound of the same, or `None`. Memory grows with its square. The flow is returned at the
            reference's own resolution in any case.
        align: align images of a wide baseline first (`gocor.matching.alignment`), and replace the flow of flat scenes
            by a homography (`gocor.matching.planar`). `None` does so if the network can.
        confidence: where confidence and occlusion come from: `"learnt"` by the network, `"consistency"` with the flow
            in the opposite direction; `None` takes the first if the network learns it.
        precision: precision of convolutions: `"bf16"` is bfloat16, `"float32"` that of the weights. `None` takes
            bfloat16 on a CPU that has instructions for it, if the network is as accurate with it.
        second_look: look at pairs that the network is unsure of a second time, from images of half the size
            (`gocor.matching.second_look`), and with `align` also at parts of the scene that move apart
            (`gocor.matching.alignment.looks`), which takes up to three times as long. `None` does so if the network
            can, unless `fast`.
        fast: match faster and less finely: small images are not enlarged, a recurrent network makes fewer updates,
            there is no second look, and a network that is given by name is loaded with `load_model(..., fast=True)`.
        batch_size: number of pairs of equal sizes that are matched at once. The flow of a pair differs by rounding
            from that of the pair alone, by about 1e-4 pixels at most in float32.

    Returns:
        A `MatchResult`, or a list of them.
    """
    options = MatchOptions(
        iters_local=iters_local,
        iters_global=iters_global,
        updates=updates,
        min_size=min_size,
        max_size=max_size,
        align=align,
        confidence=confidence,
        precision=precision,
        second_look=second_look,
        fast=fast,
    )
    check_count("batch_size", batch_size, minimum=1)
    many, pairs = _as_pairs(reference, query)
    if not isinstance(model, (str, MatchingNetwork)):
        raise InputTypeError(f"model must be a name of list_models() or a MatchingNetwork, got {type(model).__name__}")
    network = load_model(model, weights, device=choose_device(device), fast=fast) if isinstance(model, str) else model
    results = list(match_stream(pairs, network, options, batch_size=batch_size))
    return results if many else results[0]


def _as_pairs(reference: Any, query: Any) -> tuple[bool, list[tuple[ImageLike, ImageLike]]]:
    """Whether lists of images were given, and the pairs of images."""
    many, also = (isinstance(x, Sequence) and not isinstance(x, str) for x in (reference, query))
    if many != also:
        raise InputTypeError("reference and query must both be one image, or both be lists of images")
    if not many:
        return False, [(reference, query)]
    if len(reference) != len(query):
        raise InputError(f"reference and query must have the same length, got {len(reference)} and {len(query)} images")
    return True, list(zip(reference, query, strict=True))


def match_stream(
    pairs: Iterable[tuple[ImageLike, ImageLike]],
    network: MatchingNetwork,
    options: MatchOptions = DEFAULT_OPTIONS,
    *,
    batch_size: int = 4,
) -> Iterator[MatchResult]:
    """Match pairs of images in their order, reading each only when it is needed.

    Args:
        pairs: images as `match` takes them.
        network: a network on any device.
        options: how to match.
        batch_size: largest number of consecutive pairs of equal sizes that are matched together.
    """
    batch: list[tuple[Picture, Picture]] = []
    for pair in pairs:
        loaded = as_picture(pair[0]), as_picture(pair[1])
        same = batch and all(a.shape == b.shape for a, b in zip(loaded, batch[0], strict=True))
        if batch and (not same or len(batch) == batch_size):
            yield from match_pictures(batch, network, options)
            batch = []
        batch.append(loaded)
    if batch:
        yield from match_pictures(batch, network, options)


@torch.inference_mode()
def match_tensors(
    network: MatchingNetwork,
    reference: Tensor | Images,
    query: Tensor | Images,
    options: MatchOptions = DEFAULT_OPTIONS,
    *,
    backward: bool | None = None,
    flips: bool = False,
) -> Matched:
    """Flow between two batches of images. Both `match` and `gocor eval` use networks through this function.

    Args:
        network: it is used in evaluation mode, and keeps the mode that it is in.
        reference: RGB images `(B, 3, H, W)` in [0, 255], with the network's device and dtype; as `Images`, what was
            computed from one of them is reused.
        query: RGB images `(B, 3, Hq, Wq)`, likewise.
        options: how to match.
        backward: compute the flow query → reference too; `None` does so if the confidence needs it.
        flips: try mirrored images too, as on TSS, if the network can.
    """
    options = options.resolve(network, flips=flips)
    learnt = options.confidence == "learnt"
    backward = not learnt if backward is None else backward
    network = in_precision(in_evaluation_mode(network), options.precision)
    cache = FeatureCache() if backward or options.second_look else None  # for both directions and looks
    reference, query = Images.of(reference, cache), Images.of(query, cache)
    if options.align:
        how = {"second_look": options.second_look, **options.network_options()}
        return match_wide_baseline(network, reference, query, backward=backward, confidence=learnt, **how)

    def find(first: Images, second: Images, confidence: bool) -> Prediction:
        if flips and network.can_flip:
            flow, _ = network.forward_with_flips(first.pixels, second.pixels, **options.network_options())
            return Prediction(flow, None, None)
        how = {"second_look": bool(options.second_look), **options.network_options()}
        return predict_twice(network, first, second, confidence=confidence, **how)

    LOG.info("matching")
    found = find(reference, query, learnt)
    back = None
    if backward:
        LOG.info("matching in the opposite direction")
        back = find(query, reference, False).flow
    return Matched(found.flow, back, found.confidence, found.visibility)


def working_size(network: MatchingNetwork, height: int, width: int, options: MatchOptions) -> tuple[int, int]:
    """Height and width at which a network matches images with a reference of a given size."""
    bounds = options.resolve(network)
    return network.working_size(height, width, min_size=bounds.min_size or 0, max_size=bounds.max_size)


def working_scale(size: tuple[int, int], height: int, width: int) -> float:
    """Pixels of the working size per pixel of a reference of a given size."""
    return math.sqrt(math.prod(size) / (height * width))


def match_pictures(
    batch: Sequence[tuple[Picture, Picture]],
    network: MatchingNetwork,
    options: MatchOptions = DEFAULT_OPTIONS,
    cache: FeatureCache | None = None,
) -> list[MatchResult]:
    """Match pairs that all have the same two sizes, in one batch.

    Args:
        batch: RGB `(H, W, 3)` uint8. Pictures are compared by identity: one array is one picture.
        network: a network on any device.
        options: how to match.
        cache: features of the pictures of other pairs; `None` to keep none.
    """
    references, queries = zip(*batch, strict=True)
    first, second = (Images(to_batch(pictures, network), pictures, cache) for pictures in (references, queries))
    found = match_tensors(network, first, second, options)
    return to_results(network, references, queries, found, options)


def to_results(
    network: MatchingNetwork,
    references: Sequence[Picture],
    queries: Sequence[Picture],
    found: Matched,
    options: MatchOptions,
) -> list[MatchResult]:
    """Results of pairs that all have the same two sizes, from their flows."""
    height, width = references[0].shape[:2]
    query_height, query_width = queries[0].shape[:2]
    size = working_size(network, height, width, options)
    confidence, occlusion = certainty(found, (query_height, query_width), working_scale(size, height, width))
    flows = [flow.to("cpu", torch.float32, copy=True) for flow in found.forward]
    if not all(flow.isfinite().all() for flow in flows):
        raise InputError(
            f"{network.name} finds a flow that is not finite: its weights are unfit, or numbers of 16 bits overflow"
        )
    return [
        MatchResult(
            reference=references[i],
            query=queries[i],
            flow=flows[i],
            confidence=confidence[i, 0].to("cpu", copy=True),
            occlusion=occlusion[i, 0].to("cpu", copy=True),
            model=network.name,
        )
        for i in range(len(references))
    ]
