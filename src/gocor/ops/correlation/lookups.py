"""Scores of filters around given positions of a query, at several scales, without storing all pairs.

A recurrent network reads a correspondence volume by `lookup`: for each filter, the scores within a radius of the
current estimate of its match. Scores at fractional positions are interpolated bilinearly from the scores at the (2R+2)²
integer positions around them, so every filter needs only that many scalar products per scale.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...utils.checks import check_count, check_features, check_pair
from ...utils.errors import InputError
from .. import select
from ..transforms import Operator
from .lookups_windows import ScoreWindows, bounded, interpolate
from .reference import accumulation_dtype

# Scores with a whole query level that the backward pass holds at a time: they fit a CPU's cache, or fill a GPU.
BUDGET = {"cpu": 2**21, "accelerator": 2**27}


def lookup(filters: Tensor, query_pyramid: Sequence[Tensor], coordinates: Tensor, radius: int = 4) -> Tensor:
    """Scores of each filter around its position in every level of a query pyramid.

    `out[b, l·K + (dy+R)(2R+1) + (dx+R), y, x] = Σ_c filters[b, c, y, x] · query_l[b, c, ·]`, with K = (2R+1)² and the
    query read by bilinear interpolation at `(position + ½)/2^l − ½ + (dx, dy)`; zero outside the query.

    Args:
        filters: filter map or reference features `(B, C, H, W)`.
        query_pyramid: features `(B, C, Hq, Wq)`, then the same halved once, twice, …, see `pool_pyramid`.
        coordinates: positions `(B, 2, H, W)` in pixels of the first level, x then y. They get no gradient.
        radius: R, in pixels of each level.

    Returns:
        `(B, levels·(2R+1)², H, W)` in the query's dtype. Products are accumulated in float32.
    """
    check_count("radius", radius)
    check_features("filters", filters)
    check_features("coordinates", coordinates)
    if not query_pyramid:
        raise InputError("query_pyramid must have at least one level")
    if tuple(coordinates.shape) != (filters.shape[0], 2, *filters.shape[2:]):
        expected = (filters.shape[0], 2, *filters.shape[2:])
        raise InputError(f"coordinates must have shape {expected}, got {tuple(coordinates.shape)}")
    for level in query_pyramid:
        check_features("query_pyramid", level)
        check_pair("query_pyramid", level, "query_pyramid[0]", query_pyramid[0])
        if level.shape[:2] != filters.shape[:2] or level.device != filters.device:
            raise InputError(
                f"filters and query_pyramid must agree in batch, channels and device, got {tuple(filters.shape)} on "
                f"{filters.device} and {tuple(level.shape)} on {level.device}"
            )
    positions = coordinates.detach().float()
    if select.exporting():
        return lookup_all_pairs(filters, query_pyramid, positions, radius)
    with torch.autocast(filters.device.type, enabled=False):
        levels = [
            _lookup(filters, query, _at_level(positions, index), radius) for index, query in enumerate(query_pyramid)
        ]
    return torch.cat(levels, 1)


def pool_pyramid(query: Tensor, levels: int = 4) -> list[Tensor]:
    """Features `(B, C, H, W)`, then their averages over 2×2 pixels, 4×4 pixels, ….

    An odd last row or column is dropped. A map of one row (or column) keeps it.
    """
    check_count("levels", levels, 1)
    pyramid = [query]
    for _ in range(levels - 1):
        pyramid.append(F.avg_pool2d(_repeat_single(pyramid[-1]), 2))
    return pyramid


def _repeat_single(x: Tensor) -> Tensor:
    """Repeat a single row or column. Its average is the row itself, and an exported graph needs one kernel size."""
    for dim in (2, 3):
        side = x.shape[dim]
        if not select.certain(side >= 2):
            x = x.index_select(dim, torch.arange(torch.sym_max(2, side), device=x.device).clamp(max=side - 1))
    return x


def repeated_lookup(filters: Tensor, query_pyramid: Sequence[Tensor], radius: int) -> Callable[[Tensor], Tensor]:
    """`lookup` of the same filters in the same query, as a function of coordinates.

    An exported graph computes the scores of all pairs once, and every lookup reads them. A CPU without gradients does
    the same for small levels of the query; for larger levels it stores the scores around the positions.
    """
    if select.exporting():
        scores = _all_pairs(filters, query_pyramid)
        return partial(_read_scores, scores, radius=radius, dtype=query_pyramid[0].dtype)
    # Lookups read both channels last. Converted here, they need not be converted in every lookup.
    filters = filters.contiguous(memory_format=torch.channels_last)
    levels = [level.contiguous(memory_format=torch.channels_last) for level in query_pyramid]
    if not select.stores_scores(filters, *levels):
        return partial(lookup, filters, levels, radius=radius)
    readers = [_reader(filters, level, radius) for level in levels]

    def look_up(coordinates: Tensor) -> Tensor:
        with torch.autocast(filters.device.type, enabled=False):
            at = coordinates.detach().float()
            return torch.cat([read(_at_level(at, index)) for index, read in enumerate(readers)], 1)

    return look_up


def _reader(filters: Tensor, query: Tensor, radius: int) -> Callable[[Tensor], Tensor]:
    """Lookups in one query level, as a function of coordinates that stores scores for the calls that follow."""
    if not select.stores_all_scores(filters, query):
        return ScoreWindows(filters, query, radius)
    scores = _all_pairs(filters, [query])[0]
    return lambda coordinates: _read_stored(scores, coordinates, radius).to(query.dtype)


def _read_stored(scores: Tensor, coordinates: Tensor, radius: int) -> Tensor:
    """Scores of all pairs `(B, H, W, Hq, Wq)` around positions `(B, 2, H, W)`: `(B, (2R+1)², H, W)`, channels last."""
    batch, height, width = scores.shape[:3]
    index, inside, fraction = _corners(coordinates, slice(None), (scores.shape[3], scores.shape[4]), radius)
    around = scores.view(batch, height * width, -1).gather(2, index) * inside
    return interpolate(around, fraction, radius).view(batch, height, width, -1).permute(0, 3, 1, 2)


def lookup_all_pairs(filters: Tensor, query_pyramid: Sequence[Tensor], coordinates: Tensor, radius: int) -> Tensor:
    """`lookup` by storing the scores of all pairs: the specification, also of its gradients."""
    return _read_scores(_all_pairs(filters, query_pyramid), coordinates, radius, dtype=query_pyramid[0].dtype)


def _all_pairs(filters: Tensor, query_pyramid: Sequence[Tensor]) -> list[Tensor]:
    """Scores of each filter at all positions of every level: `(B, H, W, Hq, Wq)`."""
    acc = accumulation_dtype(filters, query_pyramid[0])
    with torch.autocast(filters.device.type, enabled=False):
        return [torch.einsum("bcyx,bchw->byxhw", filters.to(acc), query.to(acc)) for query in query_pyramid]


def _read_scores(levels: Sequence[Tensor], coordinates: Tensor, radius: int, *, dtype: torch.dtype) -> Tensor:
    """The scores of all pairs, read around given positions; see `lookup`."""
    batch, height, width = levels[0].shape[:3]
    axis = torch.arange(-radius, radius + 1, dtype=torch.float32, device=coordinates.device)
    offsets = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)  # (2R+1, 2R+1, 2), x varies fastest
    out = []
    for index, scores in enumerate(levels):
        at = _at_level(coordinates, index).permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) + offsets
        size = scores.shape[4], scores.shape[3]
        # Normalised for `align_corners=False`. With zero padding, scores fade to zero over one pixel beyond the border.
        grid = torch.stack([(2 * at[..., i] + 1) / size[i] - 1 for i in (0, 1)], -1).to(scores.dtype)
        maps = scores.flatten(0, 2).unsqueeze(1)
        values = F.grid_sample(maps, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        out.append(values.view(batch, height, width, -1).permute(0, 3, 1, 2))
    return torch.cat(out, 1).to(dtype)


def _at_level(coordinates: Tensor, level: int) -> Tensor:
    """Positions of the first level in pixels of another one; pixel centres are at integers."""
    return (coordinates + 0.5) / 2**level - 0.5 if level else coordinates


@cache
def _kernels() -> Any:
    return import_module(f"{__package__}.lookups_triton")


@torch.library.custom_op("gocor::lookup", mutates_args=())
def _lookup_operator(filters: Tensor, query: Tensor, coordinates: Tensor, radius: int) -> Tensor:
    if select.uses_lookup_kernel(filters, query, radius):
        return _kernels().lookup(filters, query, coordinates, radius)
    return ScoreWindows(filters, query, radius)(coordinates)


@_lookup_operator.register_fake
def _(filters: Tensor, query: Tensor, coordinates: Tensor, radius: int) -> Tensor:
    batch, _, height, width = filters.shape
    return query.new_empty(batch, height, width, (2 * radius + 1) ** 2).permute(0, 3, 1, 2)  # channels last


@torch.library.custom_op("gocor::lookup_backward", mutates_args=())
def _lookup_backward_operator(
    grad: Tensor, filters: Tensor, query: Tensor, coordinates: Tensor, radius: int, of_filters: bool, of_query: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of filters and query: by a kernel, or by matrix products for a few filters at a time."""
    if select.uses_lookup_backward_kernel(filters, query, radius):
        found = _kernels().lookup_backward(grad, filters, query, coordinates, radius, of_filters, of_query)
        pairs = zip(found, (filters, query), strict=True)
        bars = [like.new_empty(0) if bar is None else bar.to(like.dtype).contiguous() for bar, like in pairs]
        return bars[0], bars[1]
    batch, channels, height, width = filters.shape
    acc, wide, count = _product_dtype(filters, query), accumulation_dtype(filters, query), height * width
    rows, keys = filters.flatten(2).mT, query.flatten(2).mT.to(acc)  # (B, N, C), (B, Nq, C)
    bar_rows = rows.new_zeros(batch, count if of_filters else 0, channels, dtype=wide)
    bar_keys = keys.new_zeros(batch, keys.shape[1] if of_query else 0, channels, dtype=wide)
    gradients = grad.flatten(2).mT.to(wide)  # (B, N, (2R+1)²)
    for part in _parts(count, batch * keys.shape[1], filters.device):
        index, inside, fraction = _corners(coordinates, part, (query.shape[2], query.shape[3]), radius)
        spread = _spread(gradients[:, part], fraction, radius) * inside  # (B, n, (2R+2)²)
        scores = spread.new_zeros(*index.shape[:2], keys.shape[1]).scatter_add_(2, index, spread).to(acc)
        if of_filters:
            bar_rows[:, part] = torch.bmm(scores, keys).to(wide)
        if of_query:
            bar_keys += torch.bmm(scores.mT, rows[:, part].to(acc)).to(wide)
    bars = [
        bar.mT.reshape(like.shape).to(like.dtype) if needed else like.new_empty(0)
        for bar, like, needed in ((bar_rows, filters, of_filters), (bar_keys, query, of_query))
    ]
    return bars[0].contiguous(), bars[1].contiguous()


@_lookup_backward_operator.register_fake
def _(grad: Tensor, filters: Tensor, query: Tensor, coordinates: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    needs = rest[1:]
    bars = [
        x.new_empty(x.shape) if needed else x.new_empty(0) for x, needed in zip((filters, query), needs, strict=True)
    ]
    return bars[0], bars[1]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.radius = inputs[3]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad[:2]
    bars = _lookup_backward(grad, *ctx.saved_tensors, ctx.radius, *needs)
    return *(bar if needed else None for bar, needed in zip(bars, needs, strict=True)), None, None


_lookup = Operator(_lookup_operator, batched=3, save=_save, backward=_backward)
_lookup_backward = Operator(_lookup_backward_operator, batched=4)


def _product_dtype(filters: Tensor, query: Tensor) -> torch.dtype:
    """16-bit operands are multiplied as they are, with float32 accumulation, on a GPU; a CPU is faster in float32."""
    if filters.dtype == query.dtype and filters.is_cuda:
        return query.dtype
    return accumulation_dtype(filters, query)


def _parts(count: int, scores_per_filter: int, device: torch.device) -> list[slice]:
    step = max(1, BUDGET["cpu" if device.type == "cpu" else "accelerator"] // max(1, scores_per_filter))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _corners(coordinates: Tensor, part: slice, size: tuple[int, int], radius: int) -> tuple[Tensor, Tensor, Tensor]:
    """Integer positions around the positions of some filters, and the fractional parts of these positions.

    Args:
        coordinates: `(B, 2, H, W)` in pixels of a query level, x then y.
        part: which filters, of the flattened H·W.
        size: height and width of the level.
        radius: R.

    Returns:
        Flat indices of the integer positions and whether they are inside, `(B, n, (2R+2)²)`, and fractions `(B, n, 2)`.
    """
    height, width = size
    x, y = bounded(coordinates.flatten(2)[:, :, part], size, radius)  # (B, n)
    left, top = x.floor(), y.floor()
    axis = torch.arange(-radius, radius + 2, device=x.device)
    columns, rows = left.long().unsqueeze(2) + axis, top.long().unsqueeze(2) + axis  # (B, n, 2R+2)
    inside = ((rows >= 0) & (rows < height)).unsqueeze(3) & ((columns >= 0) & (columns < width)).unsqueeze(2)
    index = rows.clamp(0, height - 1).unsqueeze(3) * width + columns.clamp(0, width - 1).unsqueeze(2)
    return index.flatten(2), inside.flatten(2), torch.stack([x - left, y - top], 2)


def _spread(gradients: Tensor, fraction: Tensor, radius: int) -> Tensor:
    """The adjoint of `interpolate`."""
    fx, fy = (values[..., None, None] for values in fraction.unbind(2))
    grid = gradients.unflatten(2, (2 * radius + 1, 2 * radius + 1))
    down = F.pad((1 - fy) * grid, (0, 0, 0, 1)) + F.pad(fy * grid, (0, 0, 1, 0))
    return (F.pad((1 - fx) * down, (0, 1)) + F.pad(fx * down, (1, 0))).flatten(2)
