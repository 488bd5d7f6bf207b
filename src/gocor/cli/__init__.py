"""The `gocor` command, one module for each of its commands."""

import atexit
import gc
import platform
from typing import Annotated

import typer

from .._version import __version__
from ..utils.errors import is_user_error
from . import app as web_app
from . import (
    bench,
    convert,
    data,
    demo,
    doctor,
    evaluate,
    export,
    inspect,
    match,
    models,
    panorama,
    reconstruct,
    study,
    train,
    video,
)
from .errors import describe, fail
from .logs import log_traceback, logger, start_log, stop_log

INTERRUPTED = 130  # exit code that shells use for a command ended by Ctrl-C

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log which code runs, and show the traceback of an error.")
    ] = False,
) -> None:
    """Dense image matching and optical flow with GOCor, globally optimised correspondence volumes.

    Start with `gocor match left.jpg right.jpg -o matches`, which matches two photos, or with `gocor demo`, which shows
    what GOCor does. `gocor COMMAND --help` explains a command. `gocor doctor` checks the installation.
    `gocor --install-completion` lets your shell complete commands and options.

    Example: gocor --verbose match left.jpg right.jpg -o matches
    """
    if verbose:
        start_log()
        logger.debug("gocor %s, Python %s, %s", __version__, platform.python_version(), platform.platform())
    if version:
        typer.echo(f"gocor {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        return
    raise typer.Exit()


app.command()(match.match)
app.command()(video.video)
app.command()(reconstruct.reconstruct)
app.command()(panorama.panorama)
app.command()(demo.demo)
app.command("app")(web_app.app)
app.command()(models.models)
app.command()(convert.convert)
app.command()(export.export)
app.command()(train.train)
app.command("eval")(evaluate.evaluate)
app.command()(study.study)
app.command()(inspect.inspect)
app.command()(bench.bench)
app.add_typer(data.app, name="data")
app.command()(doctor.doctor)


def main() -> None:
    """Run the command: an error is one line on stderr and exit code 1, or 2 for a wrong command line."""
    atexit.register(gc.freeze)  # At its end, Python would look through all objects of torch for cycles: 0.2 s.
    try:
        code = app(prog_name="gocor", standalone_mode=False)  # under `python -m gocor` too
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if is_user_error(error):
            log_traceback(error)
            fail(describe(error), 1)
        # Usage errors have this method; their class lives in click or in typer, depending on typer's version.
        if not hasattr(error, "format_message"):
            raise
        late = getattr(error, "option_name", "") == "--verbose"
        message = "--verbose belongs before the command: gocor --verbose COMMAND …" if late else error.format_message()
        fail(message, getattr(error, "exit_code", 2))
    finally:
        stop_log()
    raise SystemExit(code if isinstance(code, int) else 0)
