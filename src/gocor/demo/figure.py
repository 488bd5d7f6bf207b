"""The figure of the demonstration."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .facade import Floats
from .study import CELL, HIT_RADIUS, Study, to_pixels

TRUTH_COLOUR, WRONG_COLOUR = "#39ff14", "#00c8ff"
SHOWN_ITERS = 3
DPI = 100
CAPTION = (
    "Scores of the circled reference pixel.   ○ true match   × highest score, if it is elsewhere.   "
    "Each panel is scaled to its own maximum; negative scores are black."
)


def draw_study(study: Study) -> bytes:
    """Draw a study; returns the content of a PNG file.

    The rows show the scores of one reference pixel against the reference itself and against the query. The columns show
    the picture, plain correlation, and GOCor after 0 to 3 iterations. Each heat map is scaled to its own maximum;
    negative scores are shown as zero.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = SHOWN_ITERS + 2
    figure = Figure(figsize=(15.6, 5.3), dpi=DPI, facecolor="white")
    axes = figure.subplots(2, shown + 1)
    figure.subplots_adjust(left=0.026, right=0.996, top=0.93, bottom=0.175, wspace=0.03, hspace=0.05)
    rows = (
        ("against the reference", study.views.reference, study.pixel, study.reference_scores),
        ("against the query", study.views.query, study.truth, study.query_scores),
    )
    for row, (label, picture, truth, scores) in zip(axes, rows, strict=True):
        show(row[0], picture, truth)
        row[0].set_ylabel(label, fontsize=13)
        for panel, values in zip(row[1:], scores, strict=False):
            show_scores(panel, values, picture.shape[:2], truth)
    for panel, title in zip(axes[0], column_titles(), strict=True):
        panel.set_title(title, fontsize=14)
    for panel, measure in zip(axes[1, 1:], study.measures, strict=False):
        panel.set_xlabel(f"peak {measure.error:.0f} px off\nelsewhere / truth: {measure.ratio:.2f}", fontsize=12.5)
    figure.text(0.5, 0.025, CAPTION, ha="center", fontsize=12.5)

    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def column_titles() -> list[str]:
    """Titles of the columns of the figure."""
    iterations = [f"{n} iteration{'s' * (n != 1)}" for n in range(1, SHOWN_ITERS + 1)]
    return ["picture", "plain correlation", "GOCor, 0 iterations", *iterations]


def show(panel: Any, picture: NDArray[Any], truth: Floats, **options: Any) -> None:
    """Show an image without ticks and draw a circle around the true match `(x, y)`."""
    panel.imshow(picture, **options)
    panel.plot(*truth, "o", markersize=22, markerfacecolor="none", markeredgecolor=TRUTH_COLOUR, markeredgewidth=2.2)
    panel.set(xticks=[], yticks=[])
    for spine in panel.spines.values():
        spine.set_visible(False)


def show_scores(panel: Any, scores: Floats, size: tuple[int, ...], truth: Floats) -> None:
    """Show a heat map `(h, w)` over a picture of `size` (height, width); a cross marks a wrong maximum."""
    height, width = size
    show(
        panel,
        np.maximum(scores, 0),
        truth,
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        cmap="inferno",
        vmin=0,
        interpolation="nearest",
    )
    y, x = np.unravel_index(scores.argmax(), scores.shape)
    peak = to_pixels(np.array([x, y]))
    if np.hypot(*(peak - truth)) > HIT_RADIUS * CELL:
        panel.plot(*peak, "x", markersize=10, color=WRONG_COLOUR, markeredgewidth=2.5)
