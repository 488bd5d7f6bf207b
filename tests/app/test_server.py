"""The server gives nothing but its own results, and asks nobody."""

import os
import socket
import subprocess
import sys

import pytest

from gocor.app.server import HEADERS, fetches, open_socket, temporary_folder
from gocor.utils.errors import InputError


@pytest.fixture
def get(served):
    httpx = pytest.importorskip("httpx")
    address, _ = served
    return lambda path: httpx.get(address + path, timeout=20)


def test_the_page_names_no_other_server(get):
    answer = get("/")
    assert answer.status_code == 200
    for name, value in HEADERS.items():
        assert answer.headers[name.decode()] == value.decode()
    assert "fonts.googleapis" not in answer.text
    assert "cdnjs" not in answer.text


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", __file__, "..%2f..%2fetc%2fpasswd", "http://127.0.0.1:1/x", "https:%2f%2fexample.com/x.png"],
)
def test_other_files_are_not_served(get, target):
    assert get(f"/gradio_api/file={target}").status_code in (403, 404)


def test_nothing_is_fetched_from_another_server(get, served):
    httpx = pytest.importorskip("httpx")
    assert get("/gradio_api/proxy=https://example.com/").status_code == 403
    assert fetches("/gradio_api/file=HTTP://x")
    assert not fetches("/gradio_api/file=/tmp/a.png")
    from gradio import processing_utils

    with pytest.raises(InputError, match="fetches none"):
        processing_utils.ssrf_protected_download("https://example.com/x.png", cache_dir="x")
    image = {"path": "http://127.0.0.1:1/x.png", "meta": {"_type": "gradio.FileData"}}
    config = httpx.get(served[0] + "/config").json()
    match = next(d for d in config["dependencies"] if len(d["inputs"]) == 9)
    body = {"data": [image, None, *[None] * 7], "fn_index": match["id"], "session_hash": "test"}
    httpx.post(served[0] + "/gradio_api/queue/join", json=body)
    with httpx.stream("GET", served[0] + "/gradio_api/queue/data?session_hash=test", timeout=20) as answer:
        lines = [line for line in answer.iter_lines() if "process_completed" in line]
    assert '"success":false' in lines[0]
    assert "fetches none" in lines[0]


def test_a_taken_port_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="cannot listen on 127"):
            open_socket("127.0.0.1", taken.getsockname()[1])


def test_temporary_files_are_removed():
    with temporary_folder() as folder:
        (folder / "a").mkdir()
        (folder / "a" / "b.zip").write_bytes(b"x")
    assert not folder.exists()


def test_a_terminated_server_leaves_no_files(tmp_path):
    code = """
import os, signal
from gocor.app.server import temporary_folder
with temporary_folder() as folder:
    (folder / "a").write_bytes(b"x")
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=60)
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
