"""GOCor in hloc (Hierarchical-Localization) and in image-matching-webui, which uses hloc's matchers.

Copy this file to `hloc/matchers/gocor.py` (or `imcui/hloc/matchers/gocor.py`), and add to `match_dense.confs`:

    "gocor": {
        "output": "matches-gocor",
        "model": {"name": "gocor", "model": "glunet-gocor"},
        "preprocessing": {"grayscale": False, "resize_max": 1600, "dfactor": 8}, "max_error": 2, "cell_size": 8,
    }

image-matching-webui calls it `matcher: gocor`, with `standalone: true`, in its `app.yaml`. Or write the matches without
hloc's loop, `python examples/adapters/hloc_matcher.py IMAGES pairs.txt matches.h5`, and let hloc make keypoints:

    found = match_dense.aggregate_matches(conf, pairs, matches, features, required_queries=names, max_kps=8192)
    match_dense.assign_matches(pairs, matches, found, max_error=2)  # pairs: tuples of names; names: the set of them all

Tested with hloc 1.5 as image-matching-webui 0.1.3 (`pip install imcui`) brings it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

import gocor

try:
    from ..utils.base_model import BaseModel  # as a module of hloc/matchers
except ImportError:

    class BaseModel(nn.Module):  # type: ignore[no-redef]
        """What hloc's base class does, for use without hloc."""

        default_conf: ClassVar[dict[str, Any]] = {}
        required_inputs: ClassVar[list[str]] = []

        def __init__(self, conf: dict[str, Any]) -> None:
            super().__init__()
            self.conf = {**self.default_conf, **conf}
            self._init(self.conf)

        def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
            """Check the keys and match."""
            for key in self.required_inputs:
                assert key in data, f"Missing key {key} in data"
            return self._forward(data)


class GOCor(BaseModel):
    """`image0` and `image1`, `(1, C, H, W)` in [0, 1] → `keypoints0`, `keypoints1` `(N, 2)` and `scores` `(N,)`."""

    default_conf: ClassVar[dict[str, Any]] = {"model": "glunet-gocor", "max_keypoints": 5000, "match_threshold": 0.5}
    required_inputs: ClassVar[list[str]] = ["image0", "image1"]

    def _init(self, conf: dict[str, Any]) -> None:
        self.net = gocor.load_model(conf["model"], device="cpu")  # hloc moves the module to its device

    def _forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        image0, image1 = data["image0"], data["image1"]
        result = gocor.match(image0[0], image1[0], self.net)
        rows = result.matches(self.conf["max_keypoints"], self.conf["match_threshold"])
        points = image0.new_tensor(rows)
        scores = points[:, 4]
        return {"keypoints0": points[:, :2], "keypoints1": points[:, 2:4], "scores": scores, "mconf": scores}


def write_matches(images: Path, pairs: Sequence[tuple[str, str]], path: Path, **conf: Any) -> None:
    """Write the file that `hloc.match_dense.match_dense` writes: keypoints and scores of each pair.

    Args:
        images: folder of the images.
        pairs: names of the images of each pair, relative to the folder.
        path: HDF5 file to write.
        **conf: see `GOCor.default_conf`.
    """
    import h5py

    conf = {**GOCor.default_conf, **conf}
    network = gocor.load_model(conf["model"])
    with h5py.File(path, "w") as file:
        for name0, name1 in pairs:
            result = gocor.match(images / name0, images / name1, network)
            rows = result.matches(conf["max_keypoints"], conf["match_threshold"])
            group = file.create_group("/".join(name.replace("/", "-") for name in (name0, name1)))
            for key, columns in (("keypoints0", slice(0, 2)), ("keypoints1", slice(2, 4)), ("scores", 4)):
                group.create_dataset(key, data=rows[:, columns])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Match pairs of images for hloc.")
    parser.add_argument("images", type=Path, help="folder of the images")
    parser.add_argument("pairs", type=Path, help="text file with two names a line")
    parser.add_argument("output", type=Path, help="HDF5 file to write")
    arguments = parser.parse_args()
    names = [tuple(line.split()) for line in arguments.pairs.read_text().splitlines() if line.strip()]
    write_matches(arguments.images, names, arguments.output)
