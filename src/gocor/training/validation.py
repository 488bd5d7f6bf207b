"""Validation of a network on held-out pairs and on data sets."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.synthetic.batch import PairBatch
from ..models.evaluation_view import in_evaluation_mode
from ..models.network import MatchingNetwork
from ..ops.warp import warp
from ..viz import flow_scale, flow_to_color
from ..viz.drawing import picture_of
from .config import TrainConfig
from .distributed import Group
from .losses import end_point_error
from .sources import PairSource, open_datasets
from .step import autocast_dtype, iterations

Evaluate = Callable[[MatchingNetwork], dict[str, float]]
"""Scores by name of a network, which is in evaluation mode."""

THRESHOLDS = (1, 3, 5)
ROWS, CELL = 4, 192  # pairs in a picture, and the longer side of each image in it


@torch.no_grad()
def validate(
    network: MatchingNetwork, source: PairSource, config: TrainConfig, group: Group
) -> tuple[dict[str, float], NDArray[np.uint8]]:
    """Mean end-point error and percentage of correct keypoints (PCK) over the visible pixels of held-out pairs.

    Args:
        network: the network to validate; it keeps its mode.
        source: held-out pairs, of which batches 0, 1, … are taken.
        config: sets the number of pairs, the iterations and the precision.
        group: the processes that share the work.

    Returns:
        `epe` in pixels, `pck1`, `pck3`, `pck5` in percent; and a picture of this process's first pairs.
    """
    network.autocast_dtype = autocast_dtype(config, group.device)
    network = in_evaluation_mode(network)
    sums = torch.zeros(2 + len(THRESHOLDS), device=group.device, dtype=torch.float32)
    picture: NDArray[np.uint8] = np.zeros((0, 0, 3), np.uint8)
    batch = min(config.batch, max(config.validation_pairs, group.world_size))
    for index in range(max(1, config.validation_pairs // batch)):
        pairs = source.batch(index, batch, rank=group.rank, world_size=group.world_size)
        pairs = pairs.to(group.device)
        flow = network(pairs.reference, pairs.query, **iterations(network, config))
        error = end_point_error(flow, pairs.flow)
        hits = [((error <= t) & pairs.valid).sum() for t in THRESHOLDS]
        sums += torch.stack([torch.where(pairs.valid, error, 0.0).sum(), pairs.valid.sum(), *hits])
        if index == 0:
            picture = draw_pairs(pairs.slice(0, ROWS), flow[:ROWS])
    total, count, *right = group.sum_(sums).tolist()
    count = max(count, 1)
    return {"epe": total / count} | {
        f"pck{t}": 100 * r / count for t, r in zip(THRESHOLDS, right, strict=True)
    }, picture


def dataset_scores(config: TrainConfig) -> Evaluate:
    """A function that scores a network on the data sets of `config.eval`: `NAME.aepe`, and `NAME.pck1`, … in percent.

    Scores are means over pairs, of points whose target is inside the query, with the iterations of training.
    """
    from ..evaluation import evaluate

    datasets = open_datasets(config.eval)

    def scores(network: MatchingNetwork) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, dataset in datasets.items():
            means = evaluate(network, dataset, **iterations(network, config)).summary["regions"]["all"]["pair"]
            found[f"{name}.aepe"] = means["aepe"]
            found |= {f"{name}.pck{t}": 100 * means[f"pck-{t}"] for t in THRESHOLDS}
        return found

    return scores


def draw_pairs(pairs: PairBatch, flow: Tensor) -> NDArray[np.uint8]:
    """One row per pair: reference, query, query warped by the flow, flow, and true flow, black where not visible."""
    warped = warp(pairs.query, flow)
    true = torch.where(pairs.valid, pairs.flow, torch.nan)
    rows = []
    for i in range(len(pairs)):
        images = [picture_of(x[i]) for x in (pairs.reference, pairs.query, warped)]
        scale = flow_scale(true[i])
        rows.append(np.concatenate([*images, *(flow_to_color(f[i], scale) for f in (flow, true))], 1))
    sheet = np.concatenate(rows, 0)
    stride = max(1, round(max(pairs.reference.shape[2:]) / CELL))
    return sheet[::stride, ::stride]
