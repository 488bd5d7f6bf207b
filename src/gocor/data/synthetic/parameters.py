"""Transfer of drawn parameters to the device: one tensor, one copy."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Parameters:
    """Arrays with one row per pair, concatenated to one float32 tensor, which holds integers below 2²⁴ exactly.

    Attributes:
        flat: `(B, P)` in host memory, pinned if the device is a GPU.
        shapes: shape of each array without the batch axis, by name, in the order of the columns.
    """

    flat: Tensor
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def pack(cls, arrays: dict[str, NDArray[np.float64]], *, pinned: bool) -> "Parameters":
        """Concatenate arrays `(B, ...)`."""
        columns = [np.asarray(array, np.float32).reshape(len(array), -1) for array in arrays.values()]
        flat = torch.from_numpy(np.concatenate(columns, 1))
        return cls(flat.pin_memory() if pinned else flat, {name: a.shape[1:] for name, a in arrays.items()})

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """Copy to a device, without waiting for it: the arrays by name, as views of one tensor."""
        flat = self.flat.to(device, non_blocking=True)
        parts = flat.split([int(np.prod(shape)) for shape in self.shapes.values()], 1)
        return {
            name: part.unflatten(1, shape or (1,))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
