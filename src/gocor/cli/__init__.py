"""The `gocor` command, one module for each of its commands."""

from typing import Annotated

import typer

from .._version import __version__
from . import bench, convert, data, demo, evaluate, inspect, match, models, train, video
from .errors import describe, fail, is_user_error

INTERRUPTED = 130  # exit code that shells use for a command ended by Ctrl-C

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Dense image matching and optical flow with GOCor, globally optimised correspondence volumes.

    Start with `gocor match left.jpg right.jpg -o matches`, which matches two photos, or with `gocor demo`, which shows
    what GOCor does. `gocor COMMAND --help` explains a command.
    """
    if version:
        typer.echo(f"gocor {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        return
    raise typer.Exit()


app.command()(match.match)
app.command()(video.video)
app.command()(demo.demo)
app.command()(models.models)
app.command()(convert.convert)
app.command()(train.train)
app.command("eval")(evaluate.evaluate)
app.command()(inspect.inspect)
app.command()(bench.bench)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command: an error is one line on stderr and exit code 1, or 2 for a wrong command line."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if is_user_error(error):
            fail(describe(error), 1)
        # Usage errors have this method; their class lives in click or in typer, depending on typer's version.
        if not hasattr(error, "format_message"):
            raise
        fail(error.format_message(), getattr(error, "exit_code", 2))
    raise SystemExit(code if isinstance(code, int) else 0)
