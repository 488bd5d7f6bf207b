#!/usr/bin/env python3
"""Deterministic weights for the parity fixtures.

`networks.npz` holds what the published networks output when every weight is filled by `fill` below, so a checkpoint with the
published key names can be made here, from `state_dict_shapes.json` alone, without the published weights or code:

    from recipe import published_state_dict
    torch.save({k: torch.from_numpy(v) for k, v in published_state_dict("pwcnet-gocor").items()}, "pwcnet_gocor.pth")
"""

import json
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
KNOTS = 0.5 * np.arange(10, dtype=np.float32)  # distances of the ten basis functions


def gocor_default(leaf: str, shape: tuple[int, ...]) -> np.ndarray:
    """Value that the published GOCor modules start from, by parameter name."""
    gauss = np.exp(-0.5 * KNOTS**2)
    table = {
        "label_map_predictor.weight": gauss - gauss.min(),
        "spatial_weight_predictor.weight": np.ones(10),
        "target_mask_predictor.0.weight": 4.0 * np.tanh(2.0 - KNOTS),
        "scaling": 1.0,
        "target_fg": 1.0,
        "target_bg": 0.0,
        "log_step_length": 0.0,
        "filter_reg": 1e-2,
    }
    return np.broadcast_to(
        np.asarray(table[leaf], np.float64).reshape(-1, *[1] * 0)
        if np.ndim(table[leaf]) == 0
        else np.asarray(table[leaf], np.float64).reshape(shape),
        shape,
    )


def fill(key: str, shape: tuple[int, ...]) -> np.ndarray:
    if key.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    z = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape)
    leaf = key.split(".")[-1]
    if "filter_optimizer" in key or "filter_initializer" in key:
        if "reg_layer" in key:
            return (0.05 * z).astype(np.float32)
        name = key.split("filter_optimizer.")[-1].split("filter_initializer.")[-1]
        return (gocor_default(name, shape) + 0.05 * z).astype(np.float32)
    if leaf == "running_mean":
        return (0.1 * z).astype(np.float32)
    if leaf == "running_var":
        return (0.5 + 1.0 / (1.0 + np.exp(-z))).astype(np.float32)
    if len(shape) >= 2:
        return (z * np.sqrt(2.0 / np.prod(shape[1:]))).astype(np.float32)
    if leaf == "weight":
        return (1.0 + 0.1 * z).astype(np.float32)
    return (0.01 * z).astype(np.float32)


def published_state_dict(network: str) -> dict[str, np.ndarray]:
    """State dict of a published network (`pwcnet`, `glunet-gocor`, ...) under its published key names."""
    shapes = json.loads((HERE / "state_dict_shapes.json").read_text())[network.replace("-", "_")]
    return {key: fill(key, tuple(shape)) for key, shape in shapes.items()}
