"""Checks of arguments: an error says in one line what was expected and what was given."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from .errors import InputError, InputTypeError

Normalize = Literal["mean", "sum"]


def check_features(name: str, features: Tensor) -> None:
    """Check that a feature map is a floating-point tensor `(B, C, H, W)`; only the batch may be empty."""
    if not isinstance(features, Tensor):
        raise InputTypeError(f"{name} must be a tensor, got {type(features).__name__}")
    if not features.is_floating_point():
        raise InputTypeError(f"{name} must have a floating-point dtype, got {features.dtype}")
    if features.dim() != 4 or 0 in features.shape[1:]:
        raise InputError(f"{name} must have shape (B, C, H, W) with C, H, W ≥ 1, got {tuple(features.shape)}")


def check_pair(name_a: str, a: Tensor, name_b: str, b: Tensor) -> None:
    """Check that two tensors have the same device, dtype and batch size."""
    if a.device != b.device:
        raise InputError(f"{name_a} and {name_b} must be on one device, got {a.device} and {b.device}")
    if a.dtype != b.dtype:
        raise InputTypeError(f"{name_a} and {name_b} must have one dtype, got {a.dtype} and {b.dtype}")
    if a.shape[0] != b.shape[0]:
        raise InputError(f"{name_a} and {name_b} must have one batch size, got {a.shape[0]} and {b.shape[0]}")


def check_feature_pair(reference: Tensor, query: Tensor, *, same_size: bool) -> tuple[Tensor, Tensor]:
    """Check that two feature maps can be correlated; returns them with the same dtype.

    Different dtypes are an error, except inside `torch.autocast`, whose operators return mixed dtypes (features have 16
    bits, a warped query is float32). There, both are converted to the wider dtype.
    """
    check_features("reference", reference)
    check_features("query", query)
    if reference.dtype != query.dtype and torch.is_autocast_enabled(reference.device.type):
        wider = torch.promote_types(reference.dtype, query.dtype)
        reference, query = reference.to(wider), query.to(wider)
    check_pair("reference", reference, "query", query)
    if reference.shape[1] != query.shape[1]:
        raise InputError(
            f"reference and query must have the same channels, got {reference.shape[1]} and {query.shape[1]}"
        )
    if same_size and reference.shape[2:] != query.shape[2:]:
        raise InputError(
            "reference and query must have the same height and width, "
            f"got {tuple(reference.shape[2:])} and {tuple(query.shape[2:])}"
        )
    return reference, query


def check_volume(name: str, volume: Tensor, features_name: str, features: Tensor, shape: tuple[int, ...]) -> None:
    """Check the shape of a correspondence volume, and that it fits a feature map in device, dtype and batch size."""
    check_features(features_name, features)
    check_features(name, volume)
    check_pair(name, volume, features_name, features)
    if tuple(volume.shape) != shape:
        raise InputError(f"{name} must have shape {shape}, got {tuple(volume.shape)}")


def check_count(name: str, value: int, minimum: int = 0) -> None:
    """Check that a value is an integer and at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise InputTypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise InputError(f"{name} must be at least {minimum}, got {value}")


def check_size(name: str, size: Sequence[int]) -> tuple[int, int]:
    """Check that a value is a pair of positive integers, and return it."""
    if isinstance(size, (str, Tensor)) or not isinstance(size, Sequence) or len(size) != 2:
        raise InputError(f"{name} must be (height, width), got {size!r}")
    check_count(f"height of {name}", size[0], 1)
    check_count(f"width of {name}", size[1], 1)
    return size[0], size[1]


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Check that a value is one of the choices."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def scale_of(normalize: Normalize, channels: int) -> float:
    """Factor on the sum over channels: 1/C for `"mean"`, 1 for `"sum"`."""
    check_choice("normalize", normalize, ("mean", "sum"))
    return 1.0 / channels if normalize == "mean" else 1.0
