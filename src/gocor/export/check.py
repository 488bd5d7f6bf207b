"""Comparison of an exported file with the network that it was made from."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.io.images import read_image
from ..models.network import MatchingNetwork
from ..utils.errors import InputError

Program = Callable[[Tensor, Tensor], Sequence[Tensor] | Tensor]
"""Reference and query → flow, and for some networks confidence and visibility."""

# Of reference and query. The second pair makes a batch of two; it is narrow, so that it takes less memory.
SIZES = (((240, 320), (240, 320)), ((208, 80), (192, 112)), ((152, 296), (144, 200)))
ASSETS = Path(__file__).parents[1] / "assets"
# Largest mean error of the flow in pixels, and of probabilities. Float16 rounds features to 0.1 %.
LIMITS = {"float32": (0.02, 0.002), "float16": (0.5, 0.05)}


@dataclass(frozen=True)
class Pair:
    """A test pair and what the network gives for it."""

    reference: Tensor
    query: Tensor
    results: tuple[Tensor, ...]


@dataclass(frozen=True)
class Errors:
    """Differences between a file and its network, over all test pairs.

    Attributes:
        flow_mean: largest mean end-point difference of a pair, in pixels. If the network gives a confidence, pixels are
            weighted by it: updates amplify rounding where the network finds no match.
        flow_max: largest end-point difference of any pixel, in pixels.
        probability_mean: largest mean difference of confidence or visibility; 0 if there are none.
    """

    flow_mean: float
    flow_max: float
    probability_mean: float


def sample_pairs(network: MatchingNetwork, side: int) -> list[Pair]:
    """The bundled pair of photos at three sizes, enlarged for large sides, and the results of `network.predict`."""
    photos = [read_image(ASSETS / f"{name}.jpg") for name in ("reference", "query")]
    images = [torch.from_numpy(photo).permute(2, 0, 1)[None].float() for photo in photos]
    pairs = []
    for index, sizes in enumerate(SIZES):
        scale = max(1.0, side / (3 * max(sizes[0])))  # `predict` enlarges images threefold at most, a graph does not
        resized = [_resize(image, size, scale) for image, size in zip(images, sizes, strict=True)]
        reference, query = (image.repeat(1 + index % 2, 1, 1, 1) for image in resized)  # the second is a batch of two
        with torch.no_grad():
            found = network.predict(reference, query, min_size=side, max_size=side or None)
        pairs.append(Pair(reference, query, tuple(value for value in found if value is not None)))
    return pairs


def _resize(image: Tensor, size: tuple[int, int], scale: float) -> Tensor:
    height, width = (math.ceil(scale * n) for n in size)
    return F.interpolate(image, (height, width), mode="bilinear", align_corners=False, antialias=True)


def run_onnx(path: Path) -> Program:
    """A function that runs an ONNX file by onnxruntime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = False  # it would keep the memory of every size that was run
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(reference: Tensor, query: Tensor) -> list[Tensor]:
        inputs = {"reference": reference.numpy(), "query": query.numpy()}
        return [torch.from_numpy(value) for value in session.run(None, inputs)]

    return run


def compare(pairs: Sequence[Pair], program: Program, *, half: bool) -> Errors:
    """Run a program on the test pairs; differences beyond rounding are an error."""
    rows = []
    for pair in pairs:
        with torch.no_grad():
            found = program(pair.reference, pair.query)
        results = [found] if isinstance(found, Tensor) else list(found)
        shapes = [tuple(value.shape) for value in results], [tuple(value.shape) for value in pair.results]
        if shapes[0] != shapes[1]:
            raise InputError(f"the exported graph gives shapes {shapes[0]}, the network {shapes[1]}: nothing written")
        error = torch.linalg.vector_norm(results[0] - pair.results[0], dim=1, keepdim=True)
        weights = pair.results[1] if len(pair.results) > 1 else torch.ones_like(error)
        others = zip(results[1:], pair.results[1:], strict=True)
        probabilities = [(value - expected).abs().mean() for value, expected in others] or [torch.zeros(())]
        mean = (weights * error).sum() / weights.sum()
        rows.append(torch.stack([mean, error.max(), torch.stack(probabilities).max()]))
    flow_mean, flow_max, probability = torch.stack(rows).amax(0).tolist()  # NaN stays NaN, as it would not with `max`
    limits = LIMITS["float16" if half else "float32"]
    if not (flow_mean <= limits[0] and probability <= limits[1]):  # NaN is refused too
        raise InputError(
            f"the exported graph differs from the network by {flow_mean:.3g} pixels and {probability:.3g} of "
            f"probability on average, at most {limits[0]} and {limits[1]} were expected: nothing written"
        )
    return Errors(flow_mean, flow_max, probability)
