"""Images of any kind → RGB pictures → batches of tensors."""

import logging
import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.io import read_image, to_rgb
from ..utils.arrays import Picture
from ..utils.errors import InputError, InputTypeError


class ArrayLike(Protocol):
    """An object with NumPy's array interface, such as an image of PIL."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


ImageLike: TypeAlias = str | os.PathLike[str] | NDArray[Any] | Tensor | ArrayLike
"""One image as `match` takes it."""

LOG = logging.getLogger("gocor.matching")
# Modes of PIL images whose values are not grey, RGB or RGBA, and what they are converted to.
CONVERTED_MODES = {
    **dict.fromkeys(("P", "CMYK", "LAB", "HSV", "YCbCr", "RGBX"), "RGB"),
    **dict.fromkeys(("PA", "LA", "RGBa"), "RGBA"),
}


def as_picture(image: Any) -> Picture:
    """Any image that `match` accepts → RGB `(H, W, 3)` uint8."""
    if isinstance(image, (str, os.PathLike)):
        LOG.info("reading %s", image)
        return read_image(image)
    if isinstance(image, Tensor):
        if image.dim() == 4 and len(image) == 1:
            image = image[0]
        if image.dim() not in (2, 3) or (image.dim() == 3 and len(image) not in (1, 3, 4)) or not image.numel():
            raise InputError(f"a tensor must have shape (C, H, W) with 1, 3 or 4 channels, got {tuple(image.shape)}")
        image = (image.permute(1, 2, 0) if image.dim() == 3 else image).detach().cpu()
        return to_rgb((image.float() if image.is_floating_point() else image).numpy())
    if isinstance(image, np.ndarray):
        return to_rgb(image)
    if hasattr(image, "__array_interface__"):  # Images of PIL have it.
        mode = getattr(image, "mode", "")
        to = "RGBA" if mode in ("P", "RGB") and "transparency" in image.info else CONVERTED_MODES.get(mode)
        return to_rgb(np.asarray(image if to is None else image.convert(to)))
    raise InputTypeError(f"an image must be a path, a PIL image, an array or a tensor, got {type(image).__name__}")


def to_batch(pictures: Sequence[Picture], module: nn.Module) -> Tensor:
    """Pictures of one size → `(B, 3, H, W)` in [0, 255], with the device and dtype of a module's parameters."""
    parameter = next(module.parameters())
    images = torch.from_numpy(np.stack(pictures)).to(parameter.device)
    return images.permute(0, 3, 1, 2).to(parameter.dtype, memory_format=torch.contiguous_format)
