"""Run a network that `gocor export` wrote, with numpy and onnxruntime alone: neither torch nor gocor is imported.

    gocor export glunet-gocor -o glunet.onnx
    python examples/onnx_numpy.py glunet.onnx left.png right.png out

writes `out/flow.flo`, and `out/flow.png`, where the hue is the direction and the saturation the length of the flow.
Images are read by Pillow; arrays `(H, W, 3)` in `.npy` files need no other package.
"""

import argparse
import colorsys
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def read_image(path: Path) -> Floats:
    """RGB `(1, 3, H, W)` in [0, 255]."""
    if path.suffix == ".npy":
        pixels = np.load(path)
    else:
        from PIL import Image

        pixels = np.asarray(Image.open(path).convert("RGB"))
    return pixels.astype(np.float32).transpose(2, 0, 1)[None]


def match(model: Path, reference: Floats, query: Floats) -> dict[str, Floats]:
    """Results of the graph by name: `flow` `(1, 2, H, W)`, and for some networks `confidence` and `visibility`."""
    session = onnxruntime.InferenceSession(str(model), providers=onnxruntime.get_available_providers())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"reference": reference, "query": query}), strict=True))


def write_flo(path: Path, flow: Floats) -> None:
    """Write a flow `(2, H, W)` as a Middlebury `.flo` file."""
    _, height, width = flow.shape
    header = struct.pack("<fii", 202021.25, width, height)
    path.write_bytes(header + flow.transpose(1, 2, 0).astype("<f4").tobytes())


def draw_flow(flow: Floats) -> Bytes:
    """Colours `(H, W, 3)` of a flow `(2, H, W)`."""
    length = np.hypot(flow[0], flow[1])
    hue = (np.arctan2(flow[1], flow[0]) / (2 * np.pi)) % 1.0
    saturation = np.minimum(length / max(float(np.quantile(length, 0.99)), 1e-6), 1.0)
    wheel = np.array([colorsys.hsv_to_rgb(i / 256, 1.0, 1.0) for i in range(256)])
    colours = 1 - saturation[..., None] * (1 - wheel[(hue * 256).astype(int) % 256])
    return (255 * colours).round().astype(np.uint8)


def write_png(path: Path, pixels: Bytes) -> None:
    """Write RGB pixels `(H, W, 3)`."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # no filter in any row
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def main(arguments: Sequence[str] | None = None) -> None:
    """Match two images and write the flow."""
    parser = argparse.ArgumentParser(description="Run an exported network by onnxruntime.")
    parser.add_argument("model", type=Path, help="file of `gocor export`")
    parser.add_argument("reference", type=Path, help="image or .npy file")
    parser.add_argument("query", type=Path, help="image or .npy file")
    parser.add_argument("output", type=Path, help="folder to write to")
    options = parser.parse_args(arguments)
    results = match(options.model, read_image(options.reference), read_image(options.query))
    options.output.mkdir(parents=True, exist_ok=True)
    flow = results["flow"][0]
    write_flo(options.output / "flow.flo", flow)
    write_png(options.output / "flow.png", draw_flow(flow))
    print(f"flow {flow.shape}, median length {np.median(np.hypot(*flow)):.2f} pixels")
    for name, probabilities in results.items():
        if name != "flow":
            print(f"mean {name} {probabilities.mean():.2f}")


if __name__ == "__main__":
    main()
