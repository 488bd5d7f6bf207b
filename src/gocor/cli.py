"""The `gocor` command."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ._version import __version__

if TYPE_CHECKING:
    from .demo import Study

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended
TABLE_ROWS = (0, 1, 2, 3, 4, -1)  # plain correlation, GOCor after 0 to 3 iterations, GOCor after the last

app = typer.Typer(
    help="GOCor: globally optimised correspondence volumes.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """GOCor: globally optimised correspondence volumes."""
    if version:
        typer.echo(f"gocor {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        return
    raise typer.Exit()


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path("gocor-demo"),
    seed: Annotated[int | None, typer.Option(min=0, help="Another façade than the default one.")] = None,
) -> None:
    """Plain correlation and GOCor, side by side, on a rendered picture full of look-alikes."""
    check_folder(output)
    from .demo import SEED, study
    from .demo_figure import draw_study, png_bytes

    result = study(SEED if seed is None else seed)
    files = {
        "demo.png": draw_study(result),
        "reference.png": png_bytes(result.views.reference),
        "query.png": png_bytes(result.views.query),
    }
    output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(output / name, content)
    print_measures(result)
    for name in files:
        typer.echo(f"wrote {output / name}")


def print_measures(study: "Study") -> None:
    """The measured figures of a study, as a table."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from .demo import CELL, HIT, PEAK

    x, y = study.pixel
    table = Table(title=f"The window at ({x:.0f}, {y:.0f}), and all pixels that both views show", box=SIMPLE)
    for header in ("volume", "peak off", "elsewhere/truth", "all: median", "all: right"):
        table.add_column(header, justify="left" if header == "volume" else "right", no_wrap=True)
    for m in (study.measures[row] for row in TABLE_ROWS):
        table.add_row(m.name, f"{m.error:.0f} px", f"{m.ratio:.2f}", f"{m.median_ratio:.2f}", f"{m.hits:.1%}")
    Console().print(table)
    typer.echo(
        f"elsewhere/truth: highest score more than {PEAK * CELL:.0f} px from the true match, over the highest at it."
    )
    typer.echo(f"right: highest score within {HIT * CELL:.0f} px of the true match.")
    typer.echo("Hand-made features; GOCor with the values that its training starts from, without the query term.")


def check_folder(folder: Path) -> None:
    """Fail before the work is done, not after it, where a folder cannot be made or written to."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise NotADirectoryError(0, "is not a folder", str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(0, "is not writable", str(existing))


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there as a whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(content)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def fail(message: str, code: int) -> NoReturn:
    """End with one line on stderr."""
    print(f"gocor: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code)


def main() -> None:
    """Run the command: errors are one line on stderr and exit code 1, or 2 where the command line is wrong."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:
        place = error.filename2 or error.filename  # of a renaming, its target
        fail(f"{place}: {error.strerror}" if place else str(error), 1)
    except Exception as error:
        # Typer's errors of usage; their class lives in click or in typer, depending on typer's version.
        if not hasattr(error, "format_message"):
            raise
        fail(error.format_message(), getattr(error, "exit_code", 2))
    raise SystemExit(code if isinstance(code, int) else 0)
