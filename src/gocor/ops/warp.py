"""Warping and the algebra of flows.

A flow `(B, 2, H, W)` lives on the reference grid: channel 0 is x (right), channel 1 is y (down), in pixels; reference
pixel p goes to `p + flow(p)` in the query, whose size may be another. Pixel centres are at integers. A mapping holds
the coordinates `p + flow(p)`. Coordinates are computed in float32 or wider, whatever the dtype of the flow: float16
cannot tell neighbouring pixels apart beyond 2048.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..utils.checks import check_choice, check_count, check_features, check_pair, check_size
from ..utils.errors import InputError
from .select import certain

Padding = Literal["zeros", "border"]
WarpMode = Literal["bilinear", "nearest"]

# A pixel of an inverted flow whose bilinear weights sum to less than this is a hole.
MIN_SPLAT_WEIGHT = 1e-3


def pixel_grid(
    height: int, width: int, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> Tensor:
    """Coordinates `(x, y)` of every pixel: `(1, 2, H, W)`."""
    check_count("height", height, 1)
    check_count("width", width, 1)
    y = torch.arange(height, dtype=dtype, device=device).view(1, 1, height, 1).expand(1, 1, height, width)
    x = torch.arange(width, dtype=dtype, device=device).view(1, 1, 1, width).expand(1, 1, height, width)
    return torch.cat([x, y], dim=1)


def flow_to_mapping(flow: Tensor) -> Tensor:
    """Absolute query coordinates `p + flow(p)`: `(B, 2, H, W)`, float32 or wider."""
    _check_flow("flow", flow)
    return _wide(flow) + _grid_of(flow)


def mapping_to_flow(mapping: Tensor) -> Tensor:
    """Displacements `mapping(p) - p`: `(B, 2, H, W)`, float32 or wider."""
    _check_flow("mapping", mapping)
    return _wide(mapping) - _grid_of(mapping)


def warp(query: Tensor, flow: Tensor, *, mode: WarpMode = "bilinear", padding: Padding = "zeros") -> Tensor:
    """The query seen from the reference: `out(p) = query(p + flow(p))`.

    Args:
        query: map `(B, C, Hq, Wq)` of any floating-point dtype, the flow's or another.
        flow: `(B, 2, H, W)`, reference to query.
        mode: interpolation, `"bilinear"` or `"nearest"`.
        padding: values outside the query: `"zeros"`, interpolated with the outermost pixels as in `grid_sample`, or
            the nearest pixel of the `"border"`.

    Returns:
        `(B, C, H, W)` in the query's dtype; zero where the flow is NaN or infinite, whatever the padding.
    """
    check_features("query", query)
    _check_flow("flow", flow)
    if query.device != flow.device or query.shape[0] != flow.shape[0]:  # dtypes may differ: 16 bits suit images only
        got = f"{query.device}, {query.shape[0]} and {flow.device}, {flow.shape[0]}"
        raise InputError(f"query and flow must have one device and one batch size, got {got}")
    check_choice("mode", mode, ("bilinear", "nearest"))
    check_choice("padding", padding, ("zeros", "border"))
    height, width = query.shape[-2:]
    dtype = torch.promote_types(query.dtype, torch.promote_types(flow.dtype, torch.float32))
    x, y = flow_to_mapping(flow).to(dtype).unbind(1)  # (B, H, W) each
    finite = x.isfinite() & y.isfinite()
    # All positions two pixels or more outside read zeros. Clamped there, they are safe to convert to integers.
    margin = 2 if padding == "zeros" else 0
    x = torch.where(finite, x.clamp(-margin, width - 1 + margin), -2.0)
    y = torch.where(finite, y.clamp(-margin, height - 1 + margin), -2.0)
    # A side of one pixel would divide by zero below. One more row or column of zeros does not change the result.
    source = query.to(dtype)
    narrow, low = not certain(width > 1), not certain(height > 1)
    if narrow or low:
        source = F.pad(source, (0, int(narrow), 0, int(low)))
        height, width = source.shape[-2:]
    grid = torch.stack([x * (2 / (width - 1)) - 1, y * (2 / (height - 1)) - 1], dim=-1)  # (B, H, W, 2)
    return F.grid_sample(source, grid, mode=mode, padding_mode="zeros", align_corners=True).to(query.dtype)


def inside_mask(flow: Tensor, query_size: Sequence[int]) -> Tensor:
    """Where the flow points into a query of size `(Hq, Wq)`, that is `[0, Wq-1] × [0, Hq-1]`: `(B, 1, H, W)` bool.

    False for NaN and infinity.
    """
    height, width = check_size("query_size", query_size)
    x, y = flow_to_mapping(flow).split(1, dim=1)
    return (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)


def resize_flow(
    flow: Tensor,
    size: Sequence[int],
    *,
    query_size: Sequence[int] | None = None,
    new_query_size: Sequence[int] | None = None,
    mode: WarpMode = "bilinear",
) -> Tensor:
    """The flow between the same two images after resizing them. Its values are rescaled too.

    Resizing an image by s moves a coordinate x to `(x + ½)s - ½` (pixels cover areas, as with `align_corners=False`).
    With r the reference's ratios `(W'/W, H'/H)` and q the query's, the mapping is read at `(p' + ½)/r - ½` and taken to
    the new query: `out(p') = q·flow((p' + ½)/r - ½) + (p' + ½)(q/r - 1)`. Where both images are resized alike, q = r,
    x is multiplied by W'/W and y by H'/H.

    Args:
        flow: `(B, 2, H, W)`.
        size: new size `(H', W')` of the reference.
        query_size: size `(Hq, Wq)` of the query that the flow points into; None: resized by the reference's ratios.
        new_query_size: its new size; given together with `query_size`.
        mode: interpolation of the flow, `"bilinear"` or `"nearest"`. Flow with holes needs the latter, because bilinear
            interpolation spreads a NaN to its neighbours. Beyond the outermost pixel centres the flow is constant.

    Returns:
        `(B, 2, H', W')` in the flow's dtype.
    """
    _check_flow("flow", flow)
    new_height, new_width = check_size("size", size)
    check_choice("mode", mode, ("bilinear", "nearest"))
    if (query_size is None) != (new_query_size is None):
        raise InputError(f"query_size and new_query_size must be given together, got {query_size} and {new_query_size}")
    height, width = flow.shape[-2:]
    rx, ry = new_width / width, new_height / height
    if query_size is None or new_query_size is None:
        qx, qy = rx, ry
    else:
        old, new = check_size("query_size", query_size), check_size("new_query_size", new_query_size)
        qx, qy = new[1] / old[1], new[0] / old[0]
    how, align = ("bilinear", False) if mode == "bilinear" else ("nearest-exact", None)
    x, y = F.interpolate(_wide(flow), (new_height, new_width), mode=how, align_corners=align).split(1, dim=1)
    across, down = (pixel_grid(new_height, new_width, x.dtype, x.device) + 0.5).split(1, dim=1)
    return torch.cat([qx * x + (qx / rx - 1) * across, qy * y + (qy / ry - 1) * down], dim=1).to(flow.dtype)


def scale_flow(flow: Tensor, x: float, y: float) -> Tensor:
    """Flow `(B, 2, H, W)` with its channels multiplied by two numbers, without copying a tensor to the device."""
    return flow * x if certain(x == y) else torch.cat([flow[:, :1] * x, flow[:, 1:] * y], 1)


def compose_flows(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The flow A → C, composed of A → B and B → C: `first(p) + second(p + first(p))`.

    Args:
        first: A → B, `(B, 2, H, W)` on A's grid.
        second: B → C, `(B, 2, Hb, Wb)` on B's grid.

    Returns:
        The flow A → C, `(B, 2, H, W)`, and where it is valid, `(B, 1, H, W)` bool: where `first` points into B.
        Elsewhere the value of `second` at B's border is used.
    """
    _check_flows("first", first, "second", second)
    onward = warp(second, first, padding="border")
    return first + onward, inside_mask(first, second.shape[-2:])


def invert_flow(flow: Tensor, query_size: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
    """The flow query → reference, by forward splatting: every reference pixel's displacement moves along the flow.

    `inverse(q) = -Σ_p w(p + flow(p) - q)·flow(p) / Σ_p w(p + flow(p) - q)`, with w the bilinear kernel. The result is
    exact for translations. Elsewhere its error is at most the change of the flow within a pixel of the query. Several
    pixels that land together (occlusion) are averaged. Where no pixel lands, the result is zero and marked invalid. On
    GPUs the order of the sums is not fixed, as in `scatter_add`.

    Args:
        flow: `(B, 2, H, W)`; NaN and infinite displacements are left out.
        query_size: `(Hq, Wq)`, the flow's own size by default.

    Returns:
        Inverse flow `(B, 2, Hq, Wq)` in the flow's dtype, and where it is valid, `(B, 1, Hq, Wq)` bool.
    """
    x, y = flow_to_mapping(flow).flatten(2).split(1, dim=1)  # (B, 1, HW) each
    height, width = flow.shape[-2:] if query_size is None else check_size("query_size", query_size)
    lands = (x > -1) & (x < width) & (y > -1) & (y < height)
    x, y = torch.where(lands, x, 0.0), torch.where(lands, y, 0.0)
    displacement = torch.where(lands, _wide(flow).flatten(2), 0.0)
    message = torch.cat([-displacement, torch.ones_like(x)], dim=1)  # (B, 3, HW); the last channel sums up the weights
    total = message.new_zeros(flow.shape[0], 3, height * width)
    left, top = x.detach().floor(), y.detach().floor()
    for column, row in ((left, top), (left + 1, top), (left, top + 1), (left + 1, top + 1)):
        inside = lands & (column >= 0) & (column < width) & (row >= 0) & (row < height)
        weight = torch.where(inside, (1 - (x - column).abs()) * (1 - (y - row).abs()), 0.0)
        index = torch.where(inside, row.long() * width + column.long(), 0)  # float32 cannot hold large indices
        total = total.scatter_add(2, index.expand(-1, 3, -1), message * weight)
    summed, weight = total.unflatten(2, (height, width)).split([2, 1], dim=1)
    valid = weight > MIN_SPLAT_WEIGHT
    inverse = torch.where(valid, summed / torch.where(valid, weight, 1.0), 0.0)
    return inverse.to(flow.dtype), valid


def forward_backward_error(forward: Tensor, backward: Tensor) -> Tensor:
    """Distance of each reference pixel from where both flows together take it: `‖F(p) + B(p + F(p))‖`.

    Args:
        forward: F, reference → query, `(B, 2, H, W)`.
        backward: B, query → reference, `(B, 2, Hq, Wq)`.

    Returns:
        Distances in pixels `(B, 1, H, W)`; infinity where F leaves the query, or where F or B is not finite.
    """
    there, back, inside = _there_and_back(forward, backward)
    error = torch.linalg.vector_norm(there + back, dim=1, keepdim=True)
    return torch.where(inside & error.isfinite(), error, torch.inf).to(forward.dtype)


def occlusion_mask(forward: Tensor, backward: Tensor, *, absolute: float = 0.5, relative: float = 0.01) -> Tensor:
    """Reference pixels that are occluded in the query, by the forward-backward test: `(B, 1, H, W)` bool.

    Occluded where `‖F + B‖² > relative·(‖F‖² + ‖B‖²) + absolute`, with `B = B(p + F(p))` (Sundaram et al., "Dense point
    trajectories by GPU-accelerated large displacement optical flow", ECCV 2010), where F leaves the query, and where
    either flow is not finite. `absolute` is in pixels². Flows as in `forward_backward_error`.
    """
    there, back, inside = _there_and_back(forward, backward)
    error = (there + back).square().sum(1, keepdim=True)
    allowed = relative * (there.square() + back.square()).sum(1, keepdim=True) + absolute
    return ~(inside & (error <= allowed))  # comparisons with NaN are false, so NaN counts as occluded


def _there_and_back(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`F(p)`, `B(p + F(p))`, both in float32 or wider, and where `p + F(p)` is inside the query."""
    _check_flows("forward", forward, "backward", backward)
    back = warp(_wide(backward), forward, padding="border")
    return _wide(forward), back, inside_mask(forward, backward.shape[-2:])


def _wide(flow: Tensor) -> Tensor:
    return flow.to(torch.promote_types(flow.dtype, torch.float32))


def _grid_of(flow: Tensor) -> Tensor:
    return pixel_grid(flow.shape[2], flow.shape[3], _wide(flow).dtype, flow.device)


def _check_flow(name: str, flow: Tensor) -> None:
    check_features(name, flow)
    if flow.shape[1] != 2:
        raise InputError(f"{name} must have shape (B, 2, H, W), channels x and y, got {tuple(flow.shape)}")


def _check_flows(name_a: str, a: Tensor, name_b: str, b: Tensor) -> None:
    _check_flow(name_a, a)
    _check_flow(name_b, b)
    check_pair(name_a, a, name_b, b)
