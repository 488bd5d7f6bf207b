"""All pairs of a few images, with and without features that are kept from pair to pair: processor time, and results."""

import time
from importlib.resources import as_file, files
from itertools import combinations

import cv2
import numpy as np
import torch

from benchmarks.report import parser, report
from gocor.data.io import read_image
from gocor.matching import MatchOptions, MatchResult
from gocor.matching.api import match_pictures
from gocor.matching.features import FeatureCache
from gocor.models import load_model
from gocor.models.network import MatchingNetwork
from gocor.utils.arrays import Picture


def make_pictures(count: int, width: int) -> list[Picture]:
    """Views of one photo that differ by affine maps, of a width and three quarters of it."""
    with as_file(files("gocor") / "assets" / "reference.jpg") as path:
        photo = read_image(path)
    size = width, 3 * width // 4
    photo = np.asarray(cv2.resize(photo, size, interpolation=cv2.INTER_AREA), np.uint8)
    maps = [np.array([[1, 0.02 * i, -width / 80 * i], [0.015 * i, 1, width / 120 * i]]) for i in range(count)]
    return [np.asarray(cv2.warpAffine(photo, m, size, borderMode=cv2.BORDER_REFLECT), np.uint8) for m in maps]


def measure(
    pictures: list[Picture], network: MatchingNetwork, options: MatchOptions, cache: FeatureCache | None
) -> tuple[list[MatchResult], float]:
    """The results of all pairs, one by one, and processor seconds of a pair."""
    begin, found = time.process_time(), []
    for pair in combinations(pictures, 2):
        found += match_pictures([pair], network, options, cache)
    return found, (time.process_time() - begin) / len(found)


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.set_defaults(device="cpu")
    arguments.add_argument("--images", type=int, default=6)
    arguments.add_argument("--width", type=int, default=480)
    arguments.add_argument("--model", default="recurrent-gocor")
    chosen = arguments.parse_args()
    torch.set_num_threads(1)
    network, pictures = load_model(chosen.model, device="cpu"), make_pictures(chosen.images, chosen.width)
    rows: list[dict[str, object]] = []
    for name, options in {
        "unaligned": MatchOptions(align=False, min_size=0),
        "unaligned, consistency": MatchOptions(align=False, min_size=0, confidence="consistency"),
        "with alignment": MatchOptions(min_size=0),
    }.items():
        match_pictures([(pictures[0], pictures[1])], network, options)
        plain, before = measure(pictures, network, options, None)
        kept, after = measure(pictures, network, options, FeatureCache())
        difference = max(float((a.flow - b.flow).abs().max()) for a, b in zip(plain, kept, strict=True))
        rows.append(
            {
                "pairs": f"{len(plain)} {name}",
                "processor s a pair": before,
                "with kept features": after,
                "ratio": after / before,
                "largest difference of the flow, px": difference,
            }
        )
    report("All pairs, one by one", rows, chosen)


if __name__ == "__main__":
    main()
