"""A batch of image pairs with ground-truth flow."""

from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from ...utils.errors import InputError


@dataclass(frozen=True)
class PairBatch:
    """Training pairs; `docs/conventions.md` explains the direction of flow.

    Attributes:
        reference: `(B, 3, H, W)` float32, RGB in [0, 255].
        query: `(B, 3, H, W)` float32, RGB in [0, 255].
        flow: `(B, 2, H, W)` float32, in pixels: reference pixel p corresponds to `p + flow(p)` in the query. It is
            exact wherever the reference shows a photo or an object, for occluded pixels too.
        valid: `(B, 1, H, W)` bool: the pixel shows one surface only (a photo or an object), and its target lies inside
            the query, visible there and not mixed with another surface.
        occluded: `(B, 1, H, W)` bool: the flow is known, but the query does not show the pixel. Its target lies behind
            an object or, as far as the preset allows, outside of the query.
    """

    reference: Tensor
    query: Tensor
    flow: Tensor
    valid: Tensor
    occluded: Tensor

    def __len__(self) -> int:
        return self.reference.shape[0]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Move the batch to a device."""
        moved = {field.name: getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self)}
        return type(self)(**moved)

    def slice(self, start: int, stop: int) -> Self:
        """Samples `start` to `stop - 1`, as views."""
        return type(self)(**{field.name: getattr(self, field.name)[start:stop] for field in fields(self)})

    @classmethod
    def cat(cls, batches: "list[PairBatch]") -> Self:
        """Concatenate batches whose images have the same size."""
        if not batches:
            raise InputError("cat needs at least one batch")
        return cls(**{field.name: torch.cat([getattr(b, field.name) for b in batches]) for field in fields(cls)})
