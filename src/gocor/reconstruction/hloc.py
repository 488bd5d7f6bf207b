"""Keypoints and matches as the HDF5 files of hloc, the toolbox for visual localization."""

from pathlib import Path

import numpy as np

from ..utils.extras import import_extra
from ..utils.files import atomic_path
from .graph import MatchGraph

FEATURES, MATCHES = "features.h5", "matches.h5"


def write_hloc(folder: Path, graph: MatchGraph) -> list[Path]:
    """Write `features.h5` and `matches.h5`; returns the paths.

    Features are a group per photo with `keypoints` `(K, 2)`, centres of pixels at integers, and `image_size` (width,
    height). Matches are a group per pair, `FIRST/SECOND`, with `matches0` `(K,)`, the index of the match of each
    keypoint of the first photo or -1, and `matching_scores0`.
    """
    h5py = import_extra("h5py", "sfm", "--h5")
    with atomic_path(folder / FEATURES) as temporary, h5py.File(temporary, "w") as file:
        for photo, keypoints in zip(graph.photos, graph.keypoints, strict=True):
            group = file.create_group(photo.name)
            group["keypoints"] = photo.to_stored(keypoints).astype(np.float32)
            group["image_size"] = np.array(photo.stored_size[::-1])
    with atomic_path(folder / MATCHES) as temporary, h5py.File(temporary, "w") as file:
        for (first, second), matches in graph.matches.items():
            group = file.create_group(f"{graph.photos[first].name}/{graph.photos[second].name}")
            count = len(graph.keypoints[first])
            indices, scores = np.full(count, -1, np.int32), np.zeros(count, np.float16)
            indices[matches[:, 0]], scores[matches[:, 0]] = matches[:, 1], graph.confidence[first, second]
            group["matches0"], group["matching_scores0"] = indices, scores
    return [folder / FEATURES, folder / MATCHES]
