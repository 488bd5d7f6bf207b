"""Writing of exported networks, which are compared with the network before."""

import hashlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from .._version import __version__
from ..models.network import MatchingNetwork
from ..models.weights import licence_of
from ..models.zoo import shipped
from ..utils.checks import check_count
from ..utils.errors import InputError
from ..utils.files import PathLike, atomic_path, read_bytes
from .check import Errors, compare, run_onnx, sample_pairs
from .graph import MAX_SIDE, MatchingGraph
from .storage import store_converted

MIN_SIDE = 16  # pixels: shortest side of images
SUFFIXES = (".onnx", ".pt2")
CHATTY = ("torch.onnx._internal.exporter", "torch._export.serde.serialize", "onnxscript.optimizer")  # loggers


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: path of the file.
        bytes: size of the file.
        errors: differences to the network on test images.
        metadata: the entries that the file holds.
    """

    path: Path
    bytes: int
    errors: Errors
    metadata: dict[str, str]


def export_model(
    network: MatchingNetwork,
    path: PathLike,
    *,
    size: int | None = None,
    half: bool = False,
    weights: PathLike | None = "default",
) -> Exported:
    """Export a network for images of any size, and check the file before it is put in its place.

    The file takes `reference` `(B, 3, H, W)` and `query` `(B, 3, Hq, Wq)`, RGB in [0, 255] and float32, and gives
    `flow` `(B, 2, H, W)` in the query's pixels. Networks that learn them also give `confidence` and `visibility`,
    `(B, 1, H, W)`. Resizing is part of the graph, and it holds no custom operator.

    Args:
        network: a network from `load_model`, on the CPU; its `fixed_side` and its precision are set.
        path: file to write; the suffix chooses the format, `.onnx` or `.pt2`.
        size: longer side, in pixels, that the network works at. `None` takes the network's `min_size`; 0 keeps the
            images' own size, for networks that can.
        half: run convolutions in float16. The flow and GOCor's iterations stay in float32.
        weights: what the network was loaded from; the metadata hold its SHA-256.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: the name of the file to write must end in {' or '.join(SUFFIXES)}")
    side = network.min_size if size is None else size
    check_count("size", side)
    if 0 < side < MIN_SIDE or side > MAX_SIDE:
        raise InputError(f"size must be 0 or from {MIN_SIDE} to {MAX_SIDE}, got {side}")
    if path.suffix == ".onnx":
        _check_packages()
    graph = MatchingGraph(network.eval(), side)
    network.autocast_dtype = None
    expected = sample_pairs(network, side)
    network.autocast_dtype = torch.float16 if half else None
    metadata = _metadata(network, side, half, weights)
    program = _trace(graph)
    with atomic_path(path) as temporary:
        if path.suffix == ".onnx":
            _write_onnx(program, graph, temporary, metadata)
            errors = compare(expected, run_onnx(temporary), half=half)
        else:
            content = io.BytesIO()  # torch's own errors about a full disk are no OSError
            torch.export.save(program, content, extra_files={"metadata.json": json.dumps(metadata)})
            temporary.write_bytes(content.getbuffer())
            with _quiet():
                loaded = torch.export.load(temporary).module()
            errors = compare(expected, loaded, half=half)
    return Exported(path, path.stat().st_size, errors, metadata)


def _trace(graph: MatchingGraph) -> ExportedProgram:
    """The graph for any batch, height and width."""
    batch = Dim("batch", min=1, max=1024)
    sizes = [Dim(name, min=MIN_SIDE, max=MAX_SIDE) for name in ("height", "width", "query_height", "query_width")]
    # Sizes that differ from each other, so that none is taken for another one.
    reference, query = torch.rand(2, 3, 144, 200), torch.rand(2, 3, 168, 184)
    shapes = {0: batch, 2: sizes[0], 3: sizes[1]}, {0: batch, 2: sizes[2], 3: sizes[3]}
    with torch.no_grad(), _quiet():
        return torch.export.export(graph, (255 * reference, 255 * query), dynamic_shapes=shapes)


def _write_onnx(program: ExportedProgram, graph: MatchingGraph, path: Path, metadata: dict[str, str]) -> None:
    with torch.no_grad(), _quiet():
        onnx_program = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=["reference", "query"], output_names=list(graph.outputs)
        )
    assert onnx_program is not None
    domains = {node.domain for node in onnx_program.model.graph} - {""}
    if domains or onnx_program.model.functions:
        raise InputError(f"{graph.network.name} cannot be exported: its graph holds operators of {sorted(domains)}")
    store_converted(onnx_program.model.graph)
    onnx_program.model.metadata_props.update(metadata)
    onnx_program.model.producer_name, onnx_program.model.producer_version = "gocor", __version__
    onnx_program.save(str(path), external_data=False)


def _metadata(network: MatchingNetwork, side: int, half: bool, weights: PathLike | None) -> dict[str, str]:
    """What the file says about itself."""
    if weights is None or (weights == "default" and network.name not in shipped()):
        digest = "none: start values"
    elif weights == "default":
        digest = shipped()[network.name].sha256
    else:
        digest = hashlib.sha256(read_bytes(weights)).hexdigest()
    facts: dict[str, Any] = {
        "model": network.name,
        "weights_sha256": digest,
        "version": f"gocor {__version__}",
        "licence": licence_of(network),
        "size": side,
        "precision": "float16 convolutions" if half else "float32",
        "input": "RGB in [0, 255], float32, (B, 3, H, W)",
        "flow": "reference pixel + flow = query pixel, x then y, in the query's pixels",
    }
    return {name: str(value) for name, value in facts.items()}


def _check_packages() -> None:
    """Name the extra to install if one of the packages that ONNX files need is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(f"ONNX files need {error.name}: pip install 'gocor[export]'") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporter's messages about its own packages and names."""
    loggers = [logging.getLogger(name) for name in CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
