"""A batch of image pairs with their true flow."""

from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from ...utils.errors import InputError


@dataclass(frozen=True)
class PairBatch:
    """Pairs that a network learns from; see `docs/conventions.md` for the direction of flow.

    Attributes:
        reference: `(B, 3, H, W)` float32, RGB in [0, 255].
        query: `(B, 3, H, W)`, likewise.
        flow: `(B, 2, H, W)` float32, in pixels: what the reference shows at p, the query shows at `p + flow(p)`. Exact
            wherever the reference shows a photo or an object, hidden in the query or not.
        valid: `(B, 1, H, W)` bool: the reference shows a photo or an object, unmixed, and the query shows the same at
            the target.
        occluded: `(B, 1, H, W)` bool: the target lies inside the query, hidden behind an object.
    """

    reference: Tensor
    query: Tensor
    flow: Tensor
    valid: Tensor
    occluded: Tensor

    def __len__(self) -> int:
        return self.reference.shape[0]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """The same batch on another device."""
        moved = {field.name: getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self)}
        return type(self)(**moved)

    def slice(self, start: int, stop: int) -> Self:
        """Samples `start` to `stop - 1`, as views."""
        return type(self)(**{field.name: getattr(self, field.name)[start:stop] for field in fields(self)})

    @classmethod
    def cat(cls, batches: "list[PairBatch]") -> Self:
        """One batch of several of one size."""
        if not batches:
            raise InputError("cat needs at least one batch")
        return cls(**{field.name: torch.cat([getattr(b, field.name) for b in batches]) for field in fields(cls)})
