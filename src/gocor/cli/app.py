"""`gocor app`: the web page."""

import importlib.util
from typing import Annotated

from typer import Option, echo

from ..utils.defaults import MAX_SIZE, MODEL
from ..utils.errors import InputError
from .errors import warnings_as_lines
from .options import Device, Weights, complete_model

Host = Annotated[str, Option(help="Address to listen on; 0.0.0.0 lets other machines connect.")]
Port = Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0: any free port.")]
StartModel = Annotated[
    str,
    Option(
        autocompletion=complete_model,
        help="Network that is selected at the start. --weights are for this network.",
    ),
]
Largest = Annotated[int, Option(min=128, help="Largest longer side, in pixels, that a visitor can choose to match at.")]
LOCAL = ("127.0.0.1", "localhost", "::1")


def app(
    host: Host = "127.0.0.1",
    port: Port = 7860,
    model: StartModel = MODEL,
    weights: Weights = "default",
    device: Device = "auto",
    max_size: Largest = MAX_SIZE,
) -> None:
    """Match two images on a web page, and see why a pixel matches.

    Prints the address of the page; open it in a browser. Images come from a file, the clipboard or a camera. The page
    shows the flow, an overlay, the matches and the confidence. A click on a pixel shows its scores with plain
    correlation and with GOCor. No data leaves this machine, and temporary files are removed. Ctrl-C stops the server.
    Needs extra packages: pip install 'gocor[app]'.

    Example: gocor app --port 7860
    """
    for package in ("gradio", "uvicorn", "fastapi"):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"gocor app needs {package}: pip install 'gocor[app]'")
    from ..app.server import create_app, open_socket, serve, temporary_folder
    from ..app.workshop import Workshop, start_models
    from ..models.registry import list_models
    from ..models.weights import UntrainedWarning

    listener = open_socket(host, port)
    models = start_models(model, list_models(shipped=True))
    workshop = Workshop(models, device=device, weights=None if weights == "none" else weights)
    with warnings_as_lines(UntrainedWarning):
        workshop.network(model)
    with temporary_folder() as folder:
        page = create_app(workshop, folder, largest=max_size)
        shown = f"[{host}]" if ":" in host else host
        echo(f"gocor app: http://{shown}:{listener.getsockname()[1]} (Ctrl-C ends it)")
        if host not in LOCAL:
            echo("gocor app: everyone who reaches this address can use the page; there is no password")
        serve(page, listener)
