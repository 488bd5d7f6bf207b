"""A real Ray cluster on this machine, with two workers, one of which is killed."""

import json
import os
import signal
import subprocess

import pytest

from gocor.pipeline.run import Place, find_unfinished, run_job
from gocor.pipeline.stores import open_store
from gocor.utils.errors import InputError

from .test_processes import ROOT, command
from .toy import check_folder_store, make_job, make_pairs

ray = pytest.importorskip("ray", reason="needs the extra ray")


@pytest.fixture
def crews(monkeypatch):
    """The crews that are started, with clusters that leave nothing behind."""
    from gocor.pipeline import ray_crew

    started, real = [], ray_crew.RayCrew
    monkeypatch.setattr(ray_crew, "RayCrew", lambda *a, **k: started.append(real(*a, **k)) or started[-1])
    yield started
    ray.shutdown()


def test_a_lost_worker_and_resumption(tmp_path, crews):
    """Every result is in the store once and whole; then a second run finds nothing to do."""
    pairs, job = make_pairs(tmp_path / "images", 24), make_job(tmp_path)
    pairs[20].reference.write_text("no image")  # it is the query of the pair before
    store = open_store(f"file://{tmp_path / 'out'}")
    reports = run_job(pairs, job, store, Place(ray="local", workers=2), count=len(pairs))
    found = [next(reports)]
    processes = crews[0].processes()
    assert len(set(processes)) == 2
    os.kill(processes[0], signal.SIGKILL)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    found += reports
    assert not ray.is_initialized()
    assert sorted(report.pair.name for report in found) == [pair.name for pair in pairs]
    failed = {report.pair.name for report in found if isinstance(report.result, Exception)}
    assert failed == {"pair019", "pair020"}
    whole = [pair for pair in pairs if pair.name not in failed]
    check_folder_store(tmp_path / "out", whole, job)
    assert {pair.name for pair in find_unfinished(pairs, job, store)} == failed


def test_the_command_prints_nothing_but_its_lines(tmp_path):
    """Ray itself would print on stdout that a worker was lost, among the lines for a program."""
    psutil = pytest.importorskip("psutil")
    pairs = make_pairs(tmp_path / "images", 24)
    call = command(tmp_path, "-o", str(tmp_path / "out"), "--ray", "local", "--workers", "2", "--json")
    with subprocess.Popen(call, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline()]
        workers = [p for p in psutil.Process(process.pid).children(recursive=True) if "Matcher" in p.name()]
        workers[0].kill()
        lines += process.stdout
    assert (process.returncode, len(workers) > 0) == (0, True)  # the second one may start after the first pair
    assert sorted(json.loads(line)["name"] for line in lines) == [pair.name for pair in pairs]


def test_an_address_without_a_cluster(tmp_path):
    pairs, job = make_pairs(tmp_path / "images", 1), make_job(tmp_path)
    with pytest.raises(InputError, match=r"cannot reach a Ray cluster at 127\.0\.0\.1:1"):
        run_job(pairs, job, open_store(str(tmp_path / "out")), Place(ray="127.0.0.1:1"))
