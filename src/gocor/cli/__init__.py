"""The `gocor` command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._version import __version__
from ..matching.options import MAX_SIZE, MatchOptions
from ..utils.files import check_folder
from .bench import bench
from .data import app as data_app
from .errors import describe, fail, is_explained, say, warnings_as_lines
from .evaluate import evaluate
from .inspect import inspect
from .train import train

if TYPE_CHECKING:
    from ..demo.study import Study

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended
TABLE_ROWS = (0, 1, 2, 3, 4, -1)  # plain correlation, GOCor after 0 to 3 iterations, GOCor after the last

app = typer.Typer(
    help="GOCor: globally optimised correspondence volumes.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")


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
    from ..demo.figure import draw_study, png_bytes
    from ..demo.study import SEED, study
    from ..utils.files import write_bytes_atomically

    result = study(SEED if seed is None else seed)
    files = {
        "demo.png": draw_study(result),
        "reference.png": png_bytes(result.views.reference),
        "query.png": png_bytes(result.views.query),
    }
    output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_bytes_atomically(output / name, content)
    print_measures(result)
    for name in files:
        typer.echo(f"wrote {output / name}")


@app.command()
def match(
    reference: Annotated[Path, typer.Argument(help="An image, a folder of images, or a CSV file of pairs.")],
    query: Annotated[
        Path | None, typer.Argument(help="The image to find the reference's pixels in, or a folder of such.")
    ] = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    model: Annotated[str, typer.Option(help="One of `gocor models`.")] = "glunet-gocor",
    weights: Annotated[
        str, typer.Option(help="`default` for those that ship, `none` for start values, or a checkpoint.")
    ] = "default",
    device: Annotated[str, typer.Option(help="`auto` is a GPU where there is one.")] = "auto",
    iters_local: Annotated[int | None, typer.Option(min=0, help="Iterations of the local GOCor layers.")] = None,
    iters_global: Annotated[int | None, typer.Option(min=0, help="Iterations of the global GOCor layer.")] = None,
    min_size: Annotated[
        int | None,
        typer.Option(min=0, help="Longer side that the network works at, at least; 0 enlarges no image."),
    ] = None,
    max_size: Annotated[
        int, typer.Option(min=0, help="Longer side that the network works at, at most; 0 for the images' own.")
    ] = MAX_SIZE,
    align: Annotated[
        bool | None,
        typer.Option("--align/--no-align", help="Bring far images closer, straighten flat ones; default: if possible."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pairs that are matched at once.")] = 4,
    formats: Annotated[str, typer.Option(help="Files of the flow, with commas: flo, kitti, npz, pfm.")] = "flo",
    min_confidence: Annotated[float, typer.Option(min=0, max=1, help="Of the points in matches.csv.")] = 0.5,
    max_points: Annotated[int, typer.Option(min=1, help="How many points matches.csv holds at most.")] = 5000,
    fast: Annotated[
        bool, typer.Option("--fast", help="On a GPU: 16 bits, and one recorded pass per image size; for many pairs.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Match finished pairs again.")] = False,
) -> None:
    """Dense matches between two images, two folders of images, or the pairs of a CSV file.

    Images in folders are paired by name; a CSV file has the columns reference, query and, optionally, name, with paths
    from where it lies. Results of many pairs go to OUTPUT/name. An interrupted command goes on where it was.
    """
    from ..matching.files import check_formats
    from ..models.weights import load_model
    from .batch import Options, is_finished, match_pairs, progress_bar
    from .pairs import find_pairs

    options = Options(
        model=model,
        weights=None if weights == "none" else weights,
        device=device,
        matching=MatchOptions(
            iters_local=iters_local,
            iters_global=iters_global,
            min_size=min_size,
            max_size=max_size or None,
            align=align,
        ),
        batch=batch,
        formats=[name.strip() for name in formats.split(",") if name.strip()],
        max_points=max_points,
        min_confidence=min_confidence,
    )
    check_formats(options.formats)
    check_folder(output)
    pairs = find_pairs(reference, query, output)
    todo = [pair for pair in pairs if overwrite or not is_finished(pair, options)]
    if len(todo) < len(pairs):
        which = f"{len(pairs) - len(todo)} of {len(pairs)} pairs are" if len(pairs) > 1 else f"{output} is"
        typer.echo(f"{which} finished already; --overwrite matches again")
    if not todo:
        return
    with warnings_as_lines():
        network = load_model(options.model, options.weights, device=options.device, fast=fast)
    failed = 0
    with progress_bar(len(todo), shown=len(todo) > 1) as advance:
        for pair, outcome in match_pairs(todo, network, options):
            if isinstance(outcome, Exception):
                if not pair.name:
                    fail(describe(outcome), 1)
                say(f"{pair.name}: {describe(outcome)}")
                failed += 1
            else:
                # Printed, not echoed: the bar makes room for lines of `print` alone.
                print(f"{pair.folder}: mean confidence {outcome.confidence:.2f}", flush=True)
                for file in outcome.files if not pair.name else ():
                    print(f"wrote {file}")
            advance()
    if failed:
        fail(f"{failed} of {len(todo)} pairs failed", 1)


@app.command()
def models() -> None:
    """The networks, their size, and whether trained weights of them ship."""
    import torch
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from ..models.registry import REGISTRY, create_model, list_models
    from ..models.weights import SHIPPED

    table = Table(box=SIMPLE)
    for header in ("name", "parameters", "weights", "description"):
        table.add_column(header, justify="right" if header == "parameters" else "left", no_wrap=header != "description")
    for name in list_models():
        with torch.device("meta"):  # to count, no memory is needed
            count = sum(parameter.numel() for parameter in create_model(name).parameters())
        shipped = (SHIPPED / f"{name}.safetensors").exists()
        table.add_row(name, f"{count:,}", "shipped" if shipped else "none", REGISTRY[name].description)
    Console().print(table)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A published checkpoint.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write, .safetensors.")],
    model: Annotated[
        str | None, typer.Option(help="One of `gocor models`; found by the checkpoint if left out.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """A published checkpoint as a file that `gocor match --weights` reads."""
    if target.suffix != ".safetensors":
        raise ValueError(f"{target}: the name of the file to write must end in .safetensors")
    if target.exists() and not overwrite:
        raise ValueError(f"{target} exists already: --overwrite replaces it")
    if not target.parent.exists():
        raise FileNotFoundError(f"{target.parent} does not exist: create the folder first")
    check_folder(target.parent)
    from ..models.weights import convert

    with warnings_as_lines():
        name = convert(source, target, model)
    typer.echo(f"{source} holds weights of {name}")
    typer.echo(f"wrote {target}")


app.command()(train)
app.command("eval")(evaluate)
app.command()(inspect)
app.command()(bench)


def print_measures(study: "Study") -> None:
    """The measured figures of a study, as a table."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from ..demo.study import CELL, HIT, PEAK

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


def main() -> None:
    """Run the command: errors are one line on stderr and exit code 1, or 2 where the command line is wrong."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if is_explained(error):
            fail(describe(error), 1)
        # Typer's errors of usage; their class lives in click or in typer, depending on typer's version.
        if not hasattr(error, "format_message"):
            raise
        fail(error.format_message(), getattr(error, "exit_code", 2))
    raise SystemExit(code if isinstance(code, int) else 0)
