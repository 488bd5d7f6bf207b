"""`gocor demo`: plain correlation and GOCor side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option, echo

from ..utils.files import check_folder, write_files
from .options import Output

if TYPE_CHECKING:
    from ..demo.study import Study

TABLE_ROWS = (0, 1, 2, 3, 4, -1)  # plain correlation, GOCor after 0 to 3 iterations, GOCor after the last


def demo(
    output: Output = Path("gocor-demo"),
    seed: Annotated[int | None, Option(min=0, help="Random seed of the façade.", show_default="a fixed façade")] = None,
) -> None:
    """Compare plain correlation with GOCor on a rendered façade.

    All windows of the façade look alike, so plain correlation confuses them. Writes demo.png, which shows the scores of
    one window with plain correlation and with GOCor, and the two views, reference.png and query.png. Prints how often
    the highest score is at the true match. Needs no data and no trained weights.

    Example: gocor demo -o gocor-demo
    """
    check_folder(output)
    from ..data.io import encode_image
    from ..demo.facade import SEED
    from ..demo.figure import draw_study
    from ..demo.study import study

    result = study(SEED if seed is None else seed)
    files = {
        "demo.png": draw_study(result),
        "reference.png": encode_image(result.views.reference),
        "query.png": encode_image(result.views.query),
    }
    written = write_files(output, files)
    print_measures(result)
    for file in written:
        echo(f"wrote {file}")


def print_measures(study: "Study") -> None:
    """Print the measured figures of a study as a table."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from ..demo.study import CELL, HIT_RADIUS, PEAK_RADIUS

    x, y = study.pixel
    table = Table(title=f"The window at ({x:.0f}, {y:.0f}), and all pixels that both views show", box=SIMPLE)
    for header in ("scores of", "error", "elsewhere/truth", "all: median", "all: right"):
        table.add_column(header, justify="left" if header == "scores of" else "right", no_wrap=True)
    for m in (study.measures[row] for row in TABLE_ROWS):
        table.add_row(m.name, f"{m.error:.0f} px", f"{m.ratio:.2f}", f"{m.median_ratio:.2f}", f"{m.hits:.1%}")
    Console().print(table)
    echo("error: distance of the highest score from the true match.")
    echo(
        f"elsewhere/truth: highest score more than {PEAK_RADIUS * CELL:.0f} px from the true match, divided by the "
        "highest score nearer to it."
    )
    echo("all: median: median of elsewhere/truth over all pixels that both views show.")
    echo(
        f"all: right: share of these pixels whose highest score is within {HIT_RADIUS * CELL:.0f} px of the true match."
    )
    echo("The features are hand-made. GOCor has its initial parameters and no query objective.")
