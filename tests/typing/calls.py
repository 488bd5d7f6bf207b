"""Calls of the public functions whose types mypy checks together with the package. Nothing here is run."""

from pathlib import Path
from typing import assert_type

import numpy as np
import torch
from PIL import Image

import gocor
from gocor.matching import MatchResult
from gocor.models import MatchingNetwork


def one_pair(path: Path, array: np.ndarray, tensor: torch.Tensor, image: Image.Image, network: MatchingNetwork) -> None:
    assert_type(gocor.match("a.jpg", path), MatchResult)
    assert_type(gocor.match(array, tensor, network, max_size=None), MatchResult)
    assert_type(gocor.match(image, array, "glunet-gocor", device="cpu", align=False), MatchResult)


def many_pairs(paths: list[str], tensors: tuple[torch.Tensor, ...], image: Image.Image) -> None:
    assert_type(gocor.match(paths, paths), list[MatchResult])
    assert_type(gocor.match(tensors, paths, batch_size=2), list[MatchResult])
    assert_type(gocor.match([image, "b.jpg"], paths), list[MatchResult])


def wrong(paths: list[str], layer: torch.nn.Conv2d) -> None:
    gocor.match(1, 2)  # type: ignore[call-overload]
    gocor.match("a.jpg", "b.jpg", layer)  # type: ignore[call-overload]
    gocor.match("a.jpg", "b.jpg", confidence="none")  # type: ignore[call-overload]
