"""Flows, overlays, matches and confidences as RGB pictures `(H, W, 3)`, 8 bits.

They are for people to look at: reduced to `max_side` pixels on the longer side, whatever the size of the images.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..utils.checks import check_count
from ..utils.errors import InputError
from .colors import FlowLike, Picture, as_flow, check_scale, color_legend, flow_scale, flow_to_color

MAX_SIDE = 1600
LINES = 100
LINE_GAP = 8  # between the two pictures of `draw_matches`
LEGEND = (32, 144)  # pixels: smallest size, below which it is left out, and largest
FONT_HEIGHT = 30  # of a line of OpenCV's font at scale 1
LEGEND_SHARE = 5  # of the picture's shorter side


def draw_flow(
    flow: FlowLike, *, max_flow: float | None = None, max_side: int = MAX_SIDE, legend: bool = True
) -> Picture:
    """Flow `(2, H, W)` in the colours of `flow_to_color`, with the wheel and its radius in pixels in a corner."""
    values = as_flow(flow)
    scale = check_scale(flow_scale(values) if max_flow is None else max_flow)
    height, width = _drawn_size(values.shape[1:], max_side)
    rows, columns = (_nearest(old, new) for old, new in zip(values.shape[1:], (height, width), strict=True))
    picture = flow_to_color(values[:, rows[:, None], columns], scale)  # picked, as a mean of flows may be none of them
    side = _legend_size(picture) if legend else 0
    if side:
        text = f"{scale:.3g} px" if scale < 1000 else f"{scale:.0f} px"
        line = max(12, side // 6)
        panel = np.full((side + 2 * line, max(side, _text_width(text, line)) + line, 3), 255, np.uint8)
        left = (panel.shape[1] - side) // 2
        panel[line // 2 : line // 2 + side, left : left + side] = color_legend(side)
        _write(panel, text, (panel.shape[1] / 2, side + 1.2 * line), line)
        _put_in_corner(picture, panel)
    return picture


def draw_overlay(
    reference: Picture, warped: Picture, shown: NDArray[np.bool_] | None = None, *, max_side: int = MAX_SIDE
) -> Picture:
    """The reference in red over the warped query in cyan: grey where they agree, coloured fringes where they do not.

    Complementary colours show a misalignment of one pixel, which a blend only blurs and a chequerboard shows along its
    edges alone. Colours of the images are dropped, and the query's contrast and its brightness, region by region, are
    brought to the reference's, because a difference in light is no misalignment.

    Args:
        reference: RGB `(H, W, 3)`.
        warped: the query seen from the reference, `(H, W, 3)`.
        shown: `(H, W)`, where the query shows something; by default where `warped` is not black. Elsewhere the
            reference is drawn alone, in dark red.
        max_side: bound of the longer side of the drawing.
    """
    import cv2

    _check_picture("reference", reference)
    _check_picture("warped", warped)
    if reference.shape != warped.shape:
        raise InputError(f"reference and warped must have one shape, got {reference.shape} and {warped.shape}")
    mask = np.asarray(warped.any(2) if shown is None else shown, np.float32)
    grey = [
        _reduced(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), max_side).astype(np.float32) for image in (reference, warped)
    ]
    visible = _reduced(mask, max_side)
    grey[1] = _in_light_of(grey[0], grey[1], visible)
    both = np.stack([grey[0], grey[1], grey[1]], -1)
    alone = np.stack([0.6 * grey[0], 0.2 * grey[0], 0.2 * grey[0]], -1)
    drawn = alone + visible[..., None] * (both - alone)
    return np.asarray(np.rint(np.clip(drawn, 0, 255)), np.uint8)


def draw_matches(
    reference: Picture,
    query: Picture,
    matches: NDArray[Any],
    max_lines: int = LINES,
    *,
    max_side: int = MAX_SIDE,
) -> Picture:
    """Reference and query side by side, at one height, with lines between matches.

    Lines are coloured by where they begin, so that neighbours look alike and one that goes astray stands out.

    Args:
        reference: RGB `(H, W, 3)`.
        query: RGB `(Hq, Wq, 3)`.
        matches: rows x, y, x′, y′ and anything else, `(N, 4 or more)`, as `MatchResult.matches` returns them;
            those with an end outside the pictures are not drawn.
        max_lines: rows that are drawn at most, spread over the reference.
        max_side: bound of the longer side of the drawing.
    """
    import cv2

    check_count("max_lines", max_lines, minimum=0)
    _check_picture("reference", reference)
    _check_picture("query", query)
    if matches.ndim != 2 or matches.shape[1] < 4:
        raise InputError(f"matches must have rows x, y, x', y', got shape {matches.shape}")
    pictures = (reference, query)
    aspects = [image.shape[1] / image.shape[0] for image in pictures]
    highest = min(max_side, int((max_side - LINE_GAP) / sum(aspects)), max(image.shape[0] for image in pictures))
    height = max(1, highest)
    panels = [
        _resized(image, height, max(1, int(ratio * height))) for image, ratio in zip(pictures, aspects, strict=True)
    ]
    gap = np.full((height, LINE_GAP, 3), 255, np.uint8)
    canvas = np.concatenate([panels[0], gap, panels[1]], 1)
    matches = matches[_inside(matches[:, :2], reference) & _inside(matches[:, 2:4], query)]
    chosen = matches[_spread(matches, reference.shape, max_lines)]
    ends = [_moved(chosen[:, 2 * i : 2 * i + 2], pictures[i], panels[i]) for i in (0, 1)]
    place = (chosen[:, :2] / (reference.shape[1], reference.shape[0])).mean(1).clip(0, 1)
    colours = _colormap(cv2.COLORMAP_TURBO)[np.rint(255 * place).astype(int)].tolist()
    ends[1] += (panels[0].shape[1] + LINE_GAP, 0)
    for start, end, colour in zip(*ends, colours, strict=True):
        a, b = ([round(16 * float(value)) for value in point] for point in (start, end))  # fixed point, 4 binary digits
        cv2.line(canvas, a, b, colour, 1, cv2.LINE_AA, 4)
        for point in (a, b):
            cv2.circle(canvas, point, 40, colour, -1, cv2.LINE_AA, 4)
    return canvas


def draw_confidence(confidence: Tensor | NDArray[Any], *, max_side: int = MAX_SIDE, legend: bool = True) -> Picture:
    """Confidence `(H, W)` in [0, 1], NaN as 0, from dark violet (0) to yellow (1), with a bar of the colours."""
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


def _check_picture(name: str, picture: Picture) -> None:
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or picture.size == 0:
        raise InputError(f"{name} must be RGB (H, W, 3) of 8 bits, got {picture.dtype} {picture.shape}")


def _in_light_of(reference: NDArray[Any], warped: NDArray[Any], visible: NDArray[Any]) -> NDArray[Any]:
    """Grey `(H, W)` with the reference's contrast, and around every pixel with its mean, over what is visible."""
    import cv2

    inside = visible > 0.5
    if not inside.any():
        return warped
    gain = reference[inside].std() / max(warped[inside].std(), 1.0)
    window = 2 * (max(warped.shape) // 12) + 1
    weight, old, new = (
        cv2.blur(image, (window, window), borderType=cv2.BORDER_CONSTANT)  # zeros outside have no weight
        for image in (visible, visible * reference, visible * gain * warped)
    )
    return np.asarray(gain * warped + (old - new) / np.maximum(weight, 1e-3))


def _inside(points: NDArray[Any], picture: Picture) -> NDArray[np.bool_]:
    """Which points `(N, 2)`, as `(x, y)`, a picture shows."""
    return np.asarray(((points >= -0.5) & (points <= np.subtract(picture.shape[1::-1], 0.5))).all(1))


def _spread(matches: NDArray[Any], size: Sequence[int], count: int) -> NDArray[np.intp]:
    """Rows of matches in an image of `size` (height, width): one in each cell of a grid, `count` at most."""
    cell = max(1.0, float(np.sqrt(size[0] * size[1] / max(count, 1))))
    order = np.random.default_rng(0).permutation(len(matches))  # in a cell anywhere: lines of one row cover each other
    column, row = np.floor(matches[order, :2].T / cell)
    first = np.unique(row * (size[1] + 1) + column, return_index=True)[1]
    return order[np.sort(first)[:count]]


def _drawn_size(size: Sequence[int], max_side: int) -> tuple[int, int]:
    """Height and width, in proportion, with a longer side of `max_side` at most."""
    check_count("max_side", max_side, minimum=1)
    scale = min(1.0, max_side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _reduced(image: NDArray[Any], max_side: int) -> NDArray[Any]:
    return _resized(image, *_drawn_size(image.shape[:2], max_side))


def _resized(image: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """An image `(H, W)` or `(H, W, 3)` at another size, by means of areas where it gets smaller."""
    import cv2

    if image.shape[:2] == (height, width):
        return image
    how = cv2.INTER_AREA if height < image.shape[0] else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (width, height), interpolation=how))


def _nearest(old: int, new: int) -> NDArray[np.intp]:
    """Which of `old` pixels in a row the `new` ones show."""
    return ((np.arange(new) + 0.5) * (old / new)).astype(np.intp)


def _moved(points: NDArray[Any], image: Picture, drawn: Picture) -> NDArray[np.float64]:
    """Coordinates `(N, 2)` as `(x, y)` in an image → in the drawing of it at another size; pixels cover areas."""
    ratio = np.divide(drawn.shape[1::-1], image.shape[1::-1])
    return (points.astype(np.float64) + 0.5) * ratio - 0.5


def _viridis(values: NDArray[Any]) -> Picture:
    """Values `(H, W)` in [0, 1] as colours."""
    import cv2

    return _colormap(cv2.COLORMAP_VIRIDIS)[np.rint(255 * values).astype(int)]


def _colormap(number: int) -> Picture:
    """One of OpenCV's colour maps, RGB `(256, 3)`."""
    import cv2

    levels = np.arange(256, dtype=np.uint8)[:, None]
    return np.asarray(cv2.applyColorMap(levels, number), np.uint8)[:, 0, ::-1]


def _legend_size(picture: Picture) -> int:
    """How large a legend to put into a picture, 0 for none."""
    smallest, largest = LEGEND
    size = min(picture.shape[:2]) // LEGEND_SHARE
    return min(size, largest) if size >= smallest else 0


def _put_in_corner(picture: Picture, panel: Picture) -> None:
    """Paste a panel with a thin frame into the lower right corner, in place."""
    margin = max(2, panel.shape[1] // 16)
    framed = np.pad(panel, ((1, 1), (1, 1), (0, 0)), constant_values=96)
    height, width = framed.shape[:2]
    picture[-height - margin : -margin, -width - margin : -margin] = framed


def _text_width(text: str, height: int) -> int:
    import cv2

    return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, height / FONT_HEIGHT, 1)[0][0])


def _write(picture: Picture, text: str, centre: tuple[float, float], height: int) -> None:
    """Write ASCII in black, in place."""
    import cv2

    left, bottom = centre[0] - _text_width(text, height) / 2, centre[1] + height / 3
    scale = height / FONT_HEIGHT
    cv2.putText(picture, text, (round(left), round(bottom)), cv2.FONT_HERSHEY_SIMPLEX, scale, 0, 1, cv2.LINE_AA)
