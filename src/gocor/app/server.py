"""The server of the page: it listens on this machine unless told otherwise, and asks no other machine for anything."""

import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..utils.errors import InputError
from .workshop import Workshop

ASSETS = Path(__file__).parents[1] / "assets"
EXAMPLES = {
    "Façade: windows that look alike": (ASSETS / "facade_reference.jpg", ASSETS / "facade_query.jpg"),
    "Courtyard: another view of a 3-D scene": (ASSETS / "reference.jpg", ASSETS / "query.jpg"),
}
# gradio's page evaluates templates, so scripts need 'unsafe-eval'; nothing may come from another server.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' blob:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "font-src 'self' data:; frame-ancestors 'self'; base-uri 'self'; form-action 'self'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}


def create_app(workshop: Workshop, folder: Path, *, largest: int | None = None) -> Any:
    """The ASGI application.

    Args:
        workshop: computes.
        folder: for uploads and archives; its owner removes it.
        largest: largest size that a visitor may choose, in pixels of the longer side; by default `MAX_SIZE`.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["GRADIO_TEMP_DIR"] = str(folder)  # read when components are made
    import gradio as gr
    from fastapi import FastAPI

    from ..utils.defaults import MAX_SIZE
    from .actions import Actions
    from .page import build_page, style, theme
    from .uploads import MAX_BYTES

    refuse_fetching()
    examples = {title: (str(pair[0]), str(pair[1])) for title, pair in EXAMPLES.items()}
    actions = Actions(workshop, examples, folder, largest=largest or MAX_SIZE)
    page = build_page(actions)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        allowed_paths=[],
        max_file_size=MAX_BYTES,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        pwa=False,
        enable_monitoring=False,
        theme=theme(),
        css=style(),
    )
    app.add_middleware(Guard)
    return app


def refuse_fetching() -> None:
    """Make gradio refuse addresses in place of uploaded files; it would fetch them."""
    from gradio import processing_utils

    def refuse(url: str, cache_dir: str) -> str:
        raise InputError("an image must be uploaded as a file: this server fetches none from other servers")

    async def refuse_later(url: str, cache_dir: str) -> str:
        return refuse(url, cache_dir)

    processing_utils.ssrf_protected_download = refuse
    processing_utils.async_ssrf_protected_download = refuse_later


class Guard:
    """Middleware: no request makes this server fetch from another one, and the browser may ask this server alone."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if fetches(scope["path"]):
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS.items()]}
            await send(message)

        await self.app(scope, receive, with_headers)


def fetches(path: str) -> bool:
    """Whether a path of gradio's stands for a file of another server."""
    _, found, target = path.partition("/file=")
    return "/proxy=" in path or (bool(found) and ":/" in target)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for uploads and archives, removed at the end, also if the process is terminated."""
    main = threading.current_thread() is threading.main_thread()
    # uvicorn ends its work first, and then calls this.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)) if main else None
    try:
        with tempfile.TemporaryDirectory(prefix="gocor-app-", ignore_cleanup_errors=True) as folder:
            yield Path(folder).resolve()
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot listen on {host}:{port}: {error}; choose another --port or --host") from None
    return listener


def serve(app: Any, listener: socket.socket) -> None:
    """Serve the page until the process is interrupted or terminated."""
    import uvicorn

    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listener])
