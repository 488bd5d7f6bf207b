"""Pictures of flow, overlays, matches and confidence: RGB `(H, W, 3)`, uint8.

They are for people to look at, so their longer side is reduced to at most `max_side` pixels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..utils.arrays import Mask, Picture
from ..utils.checks import check_count
from ..utils.errors import InputError
from .colors import FlowLike, as_flow, check_scale, color_legend, flow_scale, flow_to_color

MAX_SIDE = 1600  # pixels
MAX_LINES = 100
GAP = 8  # pixels between the two pictures of `draw_matches`
MIN_LEGEND, MAX_LEGEND = 32, 144  # pixels: a smaller legend is left out
LEGEND_SHARE = 1 / 5  # size of the legend relative to the picture's shorter side
FONT_HEIGHT = 30  # pixels of a line in OpenCV's font at scale 1


def draw_flow(
    flow: FlowLike, *, max_flow: float | None = None, max_side: int = MAX_SIDE, legend: bool = True
) -> Picture:
    """Draw flow `(2, H, W)` in the colours of `flow_to_color`; a corner shows the wheel and its radius in pixels."""
    values = as_flow(flow)
    scale = check_scale(flow_scale(values) if max_flow is None else max_flow)
    height, width = _drawn_size(values.shape[1:], max_side)
    rows, columns = (_nearest(old, new) for old, new in zip(values.shape[1:], (height, width), strict=True))
    # Pixels are picked, not averaged: the mean over a motion boundary is no motion of the scene.
    picture = flow_to_color(values[:, rows[:, None], columns], scale)
    if legend:
        add_flow_legend(picture, scale)
    return picture


def add_flow_legend(picture: Picture, scale: float) -> None:
    """Draw the wheel of the flow's colours and its radius in pixels into a corner, if the picture is large enough."""
    side = _legend_size(picture)
    if not side:
        return
    text = f"{scale:.3g} px" if scale < 1000 else f"{scale:.0f} px"
    line = max(12, side // 6)
    panel = np.full((side + 2 * line, max(side, _text_width(text, line)) + line, 3), 255, np.uint8)
    left = (panel.shape[1] - side) // 2
    panel[line // 2 : line // 2 + side, left : left + side] = color_legend(side)
    _write(panel, text, (panel.shape[1] / 2, side + 1.2 * line), line)
    _put_in_corner(picture, panel)


def draw_overlay(
    reference: Picture, warped: Picture, shown: Mask | None = None, *, max_side: int = MAX_SIDE
) -> Picture:
    """Draw the reference in red over the warped query in cyan: grey where they agree, coloured fringes elsewhere.

    Complementary colours show a misalignment of one pixel, which a blend would blur. The images are converted to grey,
    and the contrast and the local brightness of the query are adjusted to the reference, because a difference in
    illumination is no misalignment.

    Args:
        reference: RGB `(H, W, 3)`.
        warped: the query warped to the reference, `(H, W, 3)`.
        shown: `(H, W)`, the pixels that the warped query covers; by default those of `warped` that are not black. The
            others show the reference alone, in dark red.
        max_side: largest longer side of the drawing.
    """
    import cv2

    _check_picture("reference", reference)
    _check_picture("warped", warped)
    if reference.shape != warped.shape:
        raise InputError(f"reference and warped must have the same shape, got {reference.shape} and {warped.shape}")
    mask = np.asarray(warped.any(2) if shown is None else shown, np.float32)
    grey = [
        _reduced(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), max_side).astype(np.float32) for image in (reference, warped)
    ]
    visible = _reduced(mask, max_side)
    grey[1] = _match_brightness(grey[0], grey[1], visible)
    both = np.stack([grey[0], grey[1], grey[1]], -1)
    alone = np.stack([0.6 * grey[0], 0.2 * grey[0], 0.2 * grey[0]], -1)
    drawn = alone + visible[..., None] * (both - alone)
    return np.asarray(np.rint(np.clip(drawn, 0, 255)), np.uint8)


def draw_matches(
    reference: Picture,
    query: Picture,
    matches: NDArray[Any],
    max_lines: int = MAX_LINES,
    *,
    max_side: int = MAX_SIDE,
) -> Picture:
    """Draw reference and query side by side at the same height, with lines between matches.

    The colour of a line depends on its start, so that a wrong match stands out from its neighbours.

    Args:
        reference: RGB `(H, W, 3)`.
        query: RGB `(Hq, Wq, 3)`.
        matches: `(N, 4 or more)`, rows that begin with x, y, x′, y′, as `MatchResult.matches` returns them; rows with
            an end outside of the pictures are not drawn.
        max_lines: largest number of lines, distributed over the reference.
        max_side: largest longer side of the drawing.
    """
    import cv2

    check_count("max_lines", max_lines, minimum=0)
    _check_picture("reference", reference)
    _check_picture("query", query)
    if matches.ndim != 2 or matches.shape[1] < 4:
        raise InputError(f"matches must have rows x, y, x', y', got shape {matches.shape}")
    pictures = (reference, query)
    aspects = [image.shape[1] / image.shape[0] for image in pictures]
    height = min(max_side, int((max_side - GAP) / sum(aspects)), max(image.shape[0] for image in pictures))
    height = max(1, height)
    panels = [
        _resized(image, height, max(1, int(ratio * height))) for image, ratio in zip(pictures, aspects, strict=True)
    ]
    gap = np.full((height, GAP, 3), 255, np.uint8)
    canvas = np.concatenate([panels[0], gap, panels[1]], 1)
    matches = matches[_inside(matches[:, :2], reference) & _inside(matches[:, 2:4], query)]
    chosen = matches[_one_per_cell(matches, reference.shape, max_lines)]
    starts, ends = (_rescaled(chosen[:, 2 * i : 2 * i + 2], pictures[i], panels[i]) for i in (0, 1))
    position = (chosen[:, :2] / (reference.shape[1], reference.shape[0])).mean(1).clip(0, 1)
    colours = _colormap(cv2.COLORMAP_TURBO)[np.rint(255 * position).astype(int)].tolist()
    ends += (panels[0].shape[1] + GAP, 0)
    for start, end, colour in zip(starts, ends, colours, strict=True):
        a, b = ([round(16 * float(value)) for value in point] for point in (start, end))  # fixed point, 4 fraction bits
        cv2.line(canvas, a, b, colour, 1, cv2.LINE_AA, 4)
        for point in (a, b):
            cv2.circle(canvas, point, 40, colour, -1, cv2.LINE_AA, 4)
    return canvas


def draw_confidence(confidence: Tensor | NDArray[Any], *, max_side: int = MAX_SIDE, legend: bool = True) -> Picture:
    """Draw confidence `(H, W)` in [0, 1] from dark violet (0) to yellow (1), with a colour bar; NaN is drawn as 0."""
    values = np.asarray(confidence.detach().cpu() if isinstance(confidence, Tensor) else confidence, np.float32)
    if values.ndim != 2 or values.size == 0:
        raise InputError(f"confidence must have shape (H, W), got {values.shape}")
    picture = _viridis(_reduced(np.clip(np.nan_to_num(values), 0, 1), max_side))
    side = _legend_size(picture) if legend else 0
    if side:
        line = max(12, side // 6)
        panel = np.full((side + line, 4 * line, 3), 255, np.uint8)
        bar = _viridis(np.repeat(np.linspace(1, 0, side, dtype=np.float32)[:, None], line, 1))
        panel[line // 2 : line // 2 + side, line // 2 : line // 2 + line] = bar
        for text, y in (("1", line), ("0", side)):
            _write(panel, text, (2.6 * line, y), line)
        _put_in_corner(picture, panel)
    return picture


def picture_of(image: Tensor) -> Picture:
    """An image `(3, H, W)` in [0, 255] on any device → RGB `(H, W, 3)` uint8, rounded."""
    return image.round().clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy()


def _check_picture(name: str, picture: Picture) -> None:
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or picture.size == 0:
        raise InputError(f"{name} must be RGB (H, W, 3) uint8, got {picture.dtype} {picture.shape}")


def _match_brightness(reference: NDArray[Any], warped: NDArray[Any], visible: NDArray[Any]) -> NDArray[Any]:
    """Adjust grey values `(H, W)` to the contrast and to the local mean of the reference, over visible pixels."""
    import cv2

    inside = visible > 0.5
    if not inside.any():
        return warped
    gain = reference[inside].std() / max(warped[inside].std(), 1.0)
    window = 2 * (max(warped.shape) // 12) + 1
    weight, old, new = (
        cv2.blur(image, (window, window), borderType=cv2.BORDER_CONSTANT)  # outside, the weight is zero
        for image in (visible, visible * reference, visible * gain * warped)
    )
    return np.asarray(gain * warped + (old - new) / np.maximum(weight, 1e-3))


def _inside(points: NDArray[Any], picture: Picture) -> Mask:
    """Whether points `(N, 2)`, as `(x, y)`, lie inside a picture."""
    return np.asarray(((points >= -0.5) & (points <= np.subtract(picture.shape[1::-1], 0.5))).all(1))


def _one_per_cell(matches: NDArray[Any], size: Sequence[int], count: int) -> NDArray[np.intp]:
    """Indices of at most `count` matches, one in each cell of a grid over an image of `size` (height, width)."""
    cell = max(1.0, float(np.sqrt(size[0] * size[1] / max(count, 1))))
    # A random match of each cell is taken; the first ones of all cells would lie in rows and hide each other's lines.
    order = np.random.default_rng(0).permutation(len(matches))
    column, row = np.floor(matches[order, :2].T / cell)
    first = np.unique(row * (size[1] + 1) + column, return_index=True)[1]
    return order[np.sort(first)[:count]]


def _drawn_size(size: Sequence[int], max_side: int) -> tuple[int, int]:
    """Height and width of a picture after its longer side was reduced to at most `max_side`."""
    check_count("max_side", max_side, minimum=1)
    scale = min(1.0, max_side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _reduced(image: NDArray[Any], max_side: int) -> NDArray[Any]:
    return _resized(image, *_drawn_size(image.shape[:2], max_side))


def _resized(image: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Resize an image `(H, W)` or `(H, W, 3)`: by area averaging to make it smaller, else linearly."""
    import cv2

    if image.shape[:2] == (height, width):
        return image
    how = cv2.INTER_AREA if height < image.shape[0] else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (width, height), interpolation=how))


def _nearest(old: int, new: int) -> NDArray[np.intp]:
    """Indices of the `old` pixels along an axis that are nearest to `new` ones."""
    return ((np.arange(new) + 0.5) * (old / new)).astype(np.intp)


def _rescaled(points: NDArray[Any], image: Picture, drawn: Picture) -> NDArray[np.float64]:
    """Convert coordinates `(N, 2)`, as `(x, y)`, from an image to its resized drawing."""
    ratio = np.divide(drawn.shape[1::-1], image.shape[1::-1])
    return (points.astype(np.float64) + 0.5) * ratio - 0.5


def _viridis(values: NDArray[Any]) -> Picture:
    """Convert values `(H, W)` in [0, 1] to colours."""
    import cv2

    return _colormap(cv2.COLORMAP_VIRIDIS)[np.rint(255 * values).astype(int)]


def _colormap(number: int) -> Picture:
    """One of OpenCV's colour maps, RGB `(256, 3)`."""
    import cv2

    levels = np.arange(256, dtype=np.uint8)[:, None]
    return np.asarray(cv2.applyColorMap(levels, number), np.uint8)[:, 0, ::-1]


def _legend_size(picture: Picture) -> int:
    """Side of the legend in a picture, 0 for none."""
    size = int(LEGEND_SHARE * min(picture.shape[:2]))
    return min(size, MAX_LEGEND) if size >= MIN_LEGEND else 0


def _put_in_corner(picture: Picture, panel: Picture) -> None:
    """Paste a panel with a thin frame into the lower right corner of a picture, in place."""
    margin = max(2, panel.shape[1] // 16)
    framed = np.pad(panel, ((1, 1), (1, 1), (0, 0)), constant_values=96)
    height, width = framed.shape[:2]
    picture[-height - margin : -margin, -width - margin : -margin] = framed


def _text_width(text: str, height: int) -> int:
    import cv2

    return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, height / FONT_HEIGHT, 1)[0][0])


def _write(picture: Picture, text: str, centre: tuple[float, float], height: int) -> None:
    """Write ASCII text in black, in place."""
    import cv2

    left, bottom = centre[0] - _text_width(text, height) / 2, centre[1] + height / 3
    scale = height / FONT_HEIGHT
    cv2.putText(picture, text, (round(left), round(bottom)), cv2.FONT_HERSHEY_SIMPLEX, scale, 0, 1, cv2.LINE_AA)
