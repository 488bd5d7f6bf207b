"""A server of the page with a small network, in a thread."""

import threading
import time
import warnings

import pytest

MODEL = "recurrent-gocor-tiny"


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """Address of a running page, and the folder of its files."""
    pytest.importorskip("gradio", reason="gradio is not installed")
    import uvicorn

    from gocor.app.server import create_app, open_socket
    from gocor.app.workshop import Workshop

    folder = tmp_path_factory.mktemp("app")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workshop = Workshop([MODEL, "basenet-gocor-tiny"], device="cpu", weights=None)
        workshop.network(MODEL)
        app = create_app(workshop, folder, largest=512)
        listener = open_socket("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", folder
        server.should_exit = True
        thread.join(10)
