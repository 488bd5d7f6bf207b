"""What the page shows of a result, as HTML whose pictures are inside it, so that no picture is a file on the server."""

import base64
from html import escape

import cv2
import numpy as np

from ..data.io.images import encode_image
from ..matching.scores import PEAK_RADIUS, Peak
from ..ops.warp import inside_mask
from ..utils.arrays import Array, Picture
from ..viz import draw_confidence, draw_flow, draw_matches, draw_overlay
from .workshop import Layer, Outcome

SHOWN = 1024  # pixels of the longer side of a picture
HEAT = 420  # of a heat map
QUALITY = 88  # of JPEG pictures
BACKGROUND = 0.45  # brightness of the query behind a heat map
SCALING = 2.0  # exponent of the scores' colours, so that high scores stand out

NOTE = (
    "Bright places have a high score. Each map is scaled to its own maximum. Where scores are negative, only the query "
    "is shown. <b>○</b> is the match that the network found, <b>×</b> the highest score if it is at another place. "
    f"<b>Rival</b> is the highest score more than {PEAK_RADIUS} cells from the match, divided by the highest score "
    "nearer to it. Above 1, a wrong place has the highest score."
)
LAYERS = {
    "global": "The global layer compares the pixel with the whole query. GOCor finds in the reference which places "
    "look alike, and lowers their scores.",
    "local": "The local layer searches only the square, around a rough match. GOCor makes the peak narrow. Scores "
    "outside the square can be high, but they are not used, and only scores inside are counted here.",
}


def why_view(outcome: Outcome, x: int, y: int, name: str | None) -> str:
    """Both images with the pixel and its match, and the scores of one layer.

    Args:
        outcome: of the pair.
        x: of the reference pixel.
        y: likewise.
        name: of the layer, see `Outcome.layer`.
    """
    result, match = outcome.result, outcome.match_of(x, y)
    height, width = result.reference.shape[:2]
    layer = outcome.layer(name)
    to = f"({match[0]:.0f}, {match[1]:.0f})"
    confidence = f"confidence {float(result.confidence[y, x]):.2f}"
    hidden = "; the query does not show it" if bool(result.occlusion[y, x]) else ""
    return (
        f'<div class="gc-why" data-width="{width}" data-height="{height}" data-x="{x}" data-y="{y}">'
        '<div class="gc-pair">'
        + _shot("Reference <em>click any pixel</em>", result.reference, (x, y), pick=True)
        + _shot("Query <em>where it matches</em>", result.query, match)
        + "</div>"
        + f'<p class="gc-line" role="status">Reference pixel ({x}, {y}) → query {to}, {confidence}{hidden}.</p>'
        + (_scores(outcome, layer, x, y, match) if layer else _no_scores(outcome))
        + "</div>"
    )


def result_views(outcome: Outcome) -> dict[str, str]:
    """The other views by name: flow, overlay, before, matches and confidence."""
    result = outcome.result
    warped = result.warp()
    inside = inside_mask(result.flow[None], result.query.shape[:2])[0, 0].numpy()
    matches = result.matches()
    drawn = draw_matches(result.reference, result.query, matches, max_side=SHOWN)
    difference = draw_overlay(result.reference, warped, inside, max_side=SHOWN)
    return {
        "flow": _figure(
            draw_flow(result.flow, max_side=SHOWN),
            "Flow: the colour is the direction, its saturation the length of the motion from reference to query.",
        ),
        "overlay": _compare(result.reference, warped, "blend", "Reference", "Query, warped by the flow")
        + _figure(
            difference,
            "Reference in red, warped query in cyan. Grey: both agree. Double contours: wrong flow.",
        ),
        "before": _compare(result.query, warped, "wipe", "Query before warping", "Query, warped to the reference"),
        "matches": _figure(drawn, f"{len(matches)} matches with confidence 0.5 or more; at most 100 are drawn."),
        "confidence": _figure(
            draw_confidence(result.confidence, max_side=SHOWN),
            f"Confidence from 0 (dark) to 1 (bright); its mean is {float(result.confidence.mean()):.2f}.",
        ),
    }


def data_uri(picture: Picture) -> str:
    """A picture as text that an `img` element takes, reduced to `SHOWN` pixels."""
    data = encode_image(_reduced(picture, SHOWN), ".jpg", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()


def heat_map(scores: Array, query: Picture) -> Picture:
    """Scores `(Hq, Wq)` in colours over the darkened query, each scaled to its own maximum."""
    small = _reduced(query, HEAT)
    size = small.shape[1], small.shape[0]
    positive = np.maximum(scores, 0) / max(float(scores.max()), 1e-12)
    share = cv2.resize(positive.astype(np.float32), size, interpolation=cv2.INTER_LINEAR) ** SCALING
    colours = cv2.applyColorMap(np.rint(255 * share).astype(np.uint8), cv2.COLORMAP_INFERNO)[..., ::-1]
    grey = BACKGROUND * cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    cover = np.sqrt(share)[..., None]
    return np.asarray(np.rint(cover * colours + (1 - cover) * grey[..., None]).clip(0, 255), np.uint8)


def _scores(outcome: Outcome, layer: Layer, x: int, y: int, match: tuple[float, float]) -> str:
    """Heat maps of one layer, and how it does over all measured pixels."""
    maps, query = layer.scores.at(x, y), outcome.result.query
    peaks = [layer.scores.peak(scores, match) for scores in maps]
    square = _square(layer, match, query)
    cards = "".join(
        _card(title, heat_map(scores, query), peak, match, query, square)
        for title, scores, peak in zip(layer.scores.titles, maps, peaks, strict=True)
    )
    only = "" if len(maps) > 1 else f"<p>{escape(outcome.settings.model)} has no GOCor in this layer.</p>"
    return (
        "<h3>Scores of this pixel over the whole query</h3>"
        f"<p>{LAYERS.get(layer.scores.name, '')}</p>{only}"
        f'<div class="gc-heats">{cards}</div>{_summary(layer)}<p class="gc-note">{NOTE}</p>'
    )


def _summary(layer: Layer) -> str:
    """Bars: how often the highest score is at the match."""
    measured = layer.measured
    if not measured.pixels:
        return "<p>No pixel of this pair has a match whose confidence is at least 0.5.</p>"
    rows = "".join(
        f"<tr><th scope=row>{escape(title)}</th><td><i style='width:{100 * share:.0f}%'></i></td>"
        f"<td>{100 * share:.0f} %</td></tr>"
        for title, share in zip(layer.scores.titles, measured.hits, strict=True)
    )
    where = "" if layer.scores.reach is None else " in the square"
    text = f"All pixels: how often the highest score{where} is at the match ({measured.pixels} confident pixels)"
    return f'<table class="gc-bars"><caption>{text}</caption>{rows}</table>'


def _square(layer: Layer, match: tuple[float, float], query: Picture) -> str:
    """The square in which a local layer searches; nothing for a layer that searches the whole query."""
    if layer.scores.reach is None:
        return ""
    height, width = query.shape[:2]
    cell, side = layer.scores.query_cell, 2 * layer.scores.reach + 1
    size = f";width:{100 * side * cell[0] / width:.2f}%;height:{100 * side * cell[1] / height:.2f}%"
    return _mark(match, query, "gc-square", size)


def _card(title: str, heat: Picture, peak: Peak, match: tuple[float, float], query: Picture, square: str) -> str:
    """One heat map with its caption."""
    cross = "" if peak.hit else _mark(peak.position, query, "gc-cross")
    verdict = "✓ at the match" if peak.hit else f"✗ {peak.distance:.0f} px away from it"
    ratio = f"{peak.ratio:.2f}" if np.isfinite(peak.ratio) else "∞"
    return (
        f'<figure class="gc-card {"gc-good" if peak.hit else "gc-bad"}"><div class="gc-frame">'
        f'<img alt="scores of {escape(title)}" src="{data_uri(heat)}">{square}{_mark(match, query)}{cross}</div>'
        f"<figcaption><b>{escape(title)}</b><span>{verdict}</span><small>rival {ratio}</small></figcaption></figure>"
    )


def _no_scores(outcome: Outcome) -> str:
    return f"<p>{escape(outcome.settings.model)} does not show the scores of its layers.</p>"


def _shot(title: str, picture: Picture, point: tuple[float, float], *, pick: bool = False) -> str:
    """A picture with one marked point; with `pick`, visitors choose the point by mouse, finger or arrow keys."""
    keys = "Reference image. The arrow keys move the mark; with Shift they move it further."
    attributes = f' tabindex="0" role="application" aria-label="{keys}"' if pick else ""
    return (
        f'<figure class="gc-shot"><figcaption>{title}</figcaption>'
        f'<div class="gc-frame{" gc-pick" if pick else ""}"{attributes}>'
        f'<img alt="" draggable="false" src="{data_uri(picture)}">{_mark(point, picture)}</div></figure>'
    )


def _mark(point: tuple[float, float], picture: Picture, kind: str = "gc-ring", size: str = "") -> str:
    """A ring, a cross or a square at a point; nothing if the point is outside."""
    height, width = picture.shape[:2]
    left, top = 100 * (point[0] + 0.5) / width, 100 * (point[1] + 0.5) / height
    if not (0 <= left <= 100 and 0 <= top <= 100):
        return ""
    return f'<i class="{kind}" style="left:{left:.2f}%;top:{top:.2f}%{size}"></i>'


def _figure(picture: Picture, caption: str) -> str:
    text = escape(caption)
    image = f'<img alt="{text}" src="{data_uri(picture)}">'
    return f'<figure class="gc-figure">{image}<figcaption>{text}</figcaption></figure>'


def _compare(below: Picture, above: Picture, kind: str, left: str, right: str) -> str:
    """Two pictures on top of each other and a slider: it blends them, or moves the border between them."""
    return (
        f'<div class="gc-compare gc-{kind}" style="--at:50%;--share:0.5"><div class="gc-frame">'
        f'<img class="gc-above" alt="{escape(right)}" src="{data_uri(above)}">'
        f'<img class="gc-below" alt="{escape(left)}" src="{data_uri(below)}"></div>'
        f'<label><span>{escape(left)}</span><input type="range" min="0" max="100" value="50" '
        f'aria-label="{escape(left)} or {escape(right)}"><span>{escape(right)}</span></label></div>'
    )


def _reduced(picture: Picture, side: int) -> Picture:
    scale = side / max(picture.shape[:2])
    if scale >= 1:
        return picture
    size = max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
