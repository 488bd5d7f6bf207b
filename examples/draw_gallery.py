"""Score matches of the pairs of `courtyard.py` with their exact flow, and draw the pictures of the gallery.

python examples/courtyard.py -o courtyard
for pair in courtyard/*; do gocor match $pair/reference.jpg $pair/query.jpg --model recurrent-gocor -o $pair/out; done
python examples/draw_gallery.py courtyard -o pictures
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from gocor.data.io import read_flow, read_image, write_image
from gocor.utils.arrays import Picture
from gocor.viz import draw_flow, flow_scale

WIDTH, GAP = 400, 6  # pixels of a panel, and between panels


def draw_panels(pair: Path) -> Picture:
    """Reference, query and warped query above true flow, estimated flow and confidence, as one picture."""
    found, _ = read_flow(pair / "out" / "flow.flo")
    truth, seen = read_flow(pair / "flow.flo")
    truth = np.where(seen, truth, np.nan)  # black in the picture
    scale = flow_scale(truth)
    flows = [draw_flow(flow, max_flow=scale) for flow in (truth, found)]
    panels = [read_image(pair / file) for file in ("reference.jpg", "query.jpg", "out/warped.png")]
    panels += [*flows, read_image(pair / "out" / "confidence.png")]
    height = WIDTH * panels[0].shape[0] // panels[0].shape[1]
    sheet = np.full((2 * height + GAP, 3 * WIDTH + 2 * GAP, 3), 255, np.uint8)
    for index, panel in enumerate(panels):
        y, x = index // 3 * (height + GAP), index % 3 * (WIDTH + GAP)
        sheet[y : y + height, x : x + WIDTH] = cv2.resize(panel, (WIDTH, height), interpolation=cv2.INTER_AREA)
    return sheet


def main(arguments: Sequence[str] | None = None) -> None:
    """Score and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pairs", type=Path, help="folder that courtyard.py wrote, with the matches of each pair")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the pictures")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    print("| pair | visible | AEPE | median error | PCK-1 | PCK-5 |\n|---|---:|---:|---:|---:|---:|")
    for pair in sorted(path for path in options.pairs.iterdir() if path.is_dir()):
        (found, _), (truth, seen) = read_flow(pair / "out" / "flow.flo"), read_flow(pair / "flow.flo")
        error = np.linalg.norm(found - truth, axis=0)[seen]
        shares = [f"{100 * share:.1f}" for share in (seen.mean(), (error <= 1).mean(), (error <= 5).mean())]
        print(
            f"| {pair.name} | {shares[0]} | {error.mean():.2f} | {np.median(error):.2f} | {shares[1]} | {shares[2]} |"
        )
        write_image(options.output / f"{pair.name}.jpg", draw_panels(pair), quality=82)


if __name__ == "__main__":
    main()
