"""`gocor app`."""

import importlib.util

import pytest

from .test_cli import runner


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


def test_without_the_extra_one_line_says_what_to_install(run, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "gradio" else find(name, *rest)
    )
    assert run("app") == (1, "", "gocor: gocor app needs gradio: pip install 'gocor[app]'\n")


def test_it_listens_on_this_machine_unless_told_otherwise(run, monkeypatch):
    pytest.importorskip("gradio")
    from gocor.app import server

    def stop(app, listener):
        seen.append(listener.getsockname()[0])
        listener.close()

    seen = []
    monkeypatch.setattr(server, "serve", stop)
    arguments = ("app", "--model", "recurrent-gocor-tiny", "--weights", "none", "--port", "0")
    code, out, err = run(*arguments)
    assert code == 0
    assert out.startswith("gocor app: http://127.0.0.1:")
    assert "untrained" in err
    code, out, _ = run(*arguments, "--host", "0.0.0.0")
    assert "no password" in out
    assert seen == ["127.0.0.1", "0.0.0.0"]


def test_a_wrong_network(run):
    code, _, err = run("app", "--model", "nothing", "--port", "0")
    assert code == 1
    assert "no model is named 'nothing'" in err
