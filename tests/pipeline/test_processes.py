"""Worker processes: everything is there once and whole after workers and commands are killed."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gocor.pipeline.run import Place, find_unfinished, run_job
from gocor.pipeline.stores import open_store

from .toy import MODEL, check_folder_store, make_job, make_pairs

ROOT = Path(__file__).parents[2]
TWO = Place(devices=("cpu", "cpu"))


def test_a_killed_worker_is_replaced(tmp_path, monkeypatch):
    """Its pairs are done again, and bad pairs are reported."""
    from gocor.pipeline import run

    crews, real = [], run.ProcessCrew
    monkeypatch.setattr(run, "ProcessCrew", lambda *arguments: crews.append(real(*arguments)) or crews[0])
    pairs, job = make_pairs(tmp_path / "images", 16), make_job(tmp_path)
    pairs[15].query.write_text("no image")
    reports = run_job(pairs, job, open_store(str(tmp_path / "out")), TWO, count=16)
    before = crews[0].processes()
    found = list(itertools.islice(reports, 3))
    os.kill(before[0], signal.SIGKILL)
    found += reports
    assert sorted(report.pair.name for report in found) == [pair.name for pair in pairs]
    failed = [report.pair.name for report in found if isinstance(report.result, Exception)]
    assert failed == ["pair015"]
    check_folder_store(tmp_path / "out", pairs[:15], job)
    for process in before:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def command(tmp_path, *arguments):
    job = make_job(tmp_path)
    return [
        *(sys.executable, "-m", "gocor", "match", str(tmp_path / "images" / "pairs.csv"), "--model", MODEL),
        *("--weights", job.weights, "--iters-local", "1", "--batch", "2", *arguments),
    ]


@pytest.mark.parametrize("output", ["out", "out.h5"])
def test_a_killed_command_is_resumed(tmp_path, output):
    """Killed after its first pairs, with two workers writing; the second run does the others only."""
    if output.endswith("h5"):
        h5py = pytest.importorskip("h5py")
    pairs, job = make_pairs(tmp_path / "images", 40), make_job(tmp_path)
    call = command(tmp_path, "-o", str(tmp_path / output), "--devices", "cpu,cpu", "--json")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    # The pipe is too small for all lines, so that the command is not at its end when it is killed.
    pipe = {"stdout": subprocess.PIPE, "pipesize": 4096, "text": True, "bufsize": 1}
    with subprocess.Popen(call, cwd=ROOT, env=environment, **pipe) as process:
        first = [json.loads(process.stdout.readline()) for _ in range(4)]
        process.send_signal(signal.SIGKILL)
        first += [json.loads(line) for line in process.stdout if line.endswith("\n")]
    reported = {line["name"] for line in first if line["status"] == "done"}
    assert 4 <= len(reported) < 40
    time.sleep(0.5)  # the workers end by themselves
    store = open_store(str(tmp_path / output))
    todo = find_unfinished(pairs, job, store)
    store.close()
    assert reported <= {pair.name for pair in todo.others()}
    done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    second = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["name"] for line in second) == [pair.name for pair in pairs]
    assert {line["name"] for line in second if line["status"] == "done"} == {pair.name for pair in todo}
    if output == "out":
        check_folder_store(tmp_path / output, pairs, job)
        return
    with h5py.File(tmp_path / output) as file:
        assert sorted(file) == [pair.name for pair in pairs]
        for name in file:
            assert file[name]["flow"].shape[1:] == tuple(json.loads(file[name].attrs["done"])["reference_size"])


def test_errors_that_concern_all_pairs_are_raised(tmp_path):
    pairs, job = make_pairs(tmp_path / "images", 4), make_job(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pair000").write_text("in the way of a folder")
    with pytest.raises(FileExistsError):
        list(run_job(pairs, job, open_store(str(tmp_path / "out")), TWO, count=4))
