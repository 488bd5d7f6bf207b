"""Drawn parameters on their way to the device: one tensor, one copy."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Parameters:
    """Arrays with one row per pair, side by side in one float32 tensor; integers below 2²⁴ survive it.

    Attributes:
        flat: `(B, P)` in host memory, pinned where a GPU will read it.
        shapes: name to shape without the batch axis, in the order of the columns.
    """

    flat: Tensor
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def pack(cls, arrays: dict[str, NDArray[np.float64]], *, pinned: bool) -> "Parameters":
        """From arrays `(B, ...)`."""
        columns = [np.asarray(array, np.float32).reshape(len(array), -1) for array in arrays.values()]
        flat = torch.from_numpy(np.concatenate(columns, 1))
        return cls(flat.pin_memory() if pinned else flat, {name: a.shape[1:] for name, a in arrays.items()})

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """The arrays as views of one tensor on the device; does not wait for the copy."""
        flat = self.flat.to(device, non_blocking=True)
        parts = flat.split([int(np.prod(shape)) for shape in self.shapes.values()], 1)
        return {
            name: part.unflatten(1, shape or (1,))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
