"""A run that is killed, stopped or ended goes on as if nothing had happened."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from gocor.models import load_model
from gocor.models.zoo import read_row
from gocor.training import train
from gocor.training.checkpoint import read_checkpoint
from gocor.training.logs import trim_log

from .toy import Toy, toy_config, toy_run, toy_sources

ROOT = Path(__file__).parents[2]
OPTIONS = {"checkpoint_every": 2, "validate_every": 4, "log_every": 1}


def records(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def comparable(folder):
    return [{k: v for k, v in record.items() if k not in ("pairs_per_second", "minutes")} for record in records(folder)]


def start(folder, steps, *others):
    command = [sys.executable, "-m", "tests.training.toy", str(folder), str(steps), *others]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)


def kill_at(process, folder, step):
    """SIGKILL once the log speaks of a step."""
    log = folder / "log.jsonl"
    deadline = time.monotonic() + 60
    while not (log.exists() and f'"step": {step},' in log.read_text()):
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait()


def equal_states(ours, theirs):
    for part in ("network", "average"):
        assert ours[part].keys() == theirs[part].keys()
        assert all(torch.equal(ours[part][key], theirs[part][key]) for key in ours[part]), part
    for key, state in ours["optimizer"].items():
        assert all(torch.equal(value, theirs["optimizer"][key][name]) for name, value in state.items())
    assert torch.equal(ours["totals"], theirs["totals"])


def test_killed_and_resumed_is_the_same_run(tmp_path):
    """SIGKILL between checkpoints, in a process of its own; then on to the end, bit for bit as without it."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    settings = [f"{key}={value}" for key, value in OPTIONS.items()]
    kill_at(start(killed, 8, *settings), killed, 5)
    step = read_checkpoint(killed / "last.pt")["progress"]["step"]
    assert step in (4, 5)
    assert max(record["step"] for record in records(killed)) >= 5
    toy_run(killed, steps=8, resume=True, **OPTIONS)
    toy_run(whole, steps=8, **OPTIONS)
    ours, theirs = (read_checkpoint(folder / "last.pt") for folder in (killed, whole))
    equal_states(ours, theirs)
    assert {k: ours["progress"][k] for k in ("step", "best")} == {k: theirs["progress"][k] for k in ("step", "best")}
    assert comparable(killed) == comparable(whole)
    assert [r["step"] for r in records(killed) if r["kind"] == "train"] == list(range(1, 9))
    tensors = [
        load_model("pwcnet-gocor-tiny", f / "best.safetensors", device="cpu").state_dict() for f in (killed, whole)
    ]
    assert all(torch.equal(tensors[0][key], tensors[1][key]) for key in tensors[0])


def test_means_in_the_log_go_on_over_a_resume(tmp_path):
    """A checkpoint in the middle of what one record sums up."""
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    options = {"log_every": 4, "schedule": "constant", "warmup": 0, "validate_every": 100}
    toy_run(parts, steps=2, **options)
    toy_run(parts, steps=4, resume=True, **options)
    toy_run(whole, steps=4, **options)
    trained = [[r for r in comparable(f) if r["kind"] == "train"] for f in (parts, whole)]
    assert trained[0] == trained[1]
    assert len(trained[0]) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_with_a_checkpoint(tmp_path, number):
    class Signalling(Toy):
        def batch(self, step, *args, **options):
            if step == 2:
                os.kill(os.getpid(), number)
            return super().batch(step, *args, **options)

    handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    sources = type(toy_sources(toy_config(tmp_path)))(Signalling(), Toy(seed=1), "toy pairs")
    outcome = toy_run(tmp_path, steps=50, sources=sources)
    assert (outcome.signal, outcome.finished) == (number, False)
    assert 1 <= outcome.step < 10
    assert read_checkpoint(tmp_path / "last.pt")["progress"]["step"] == outcome.step
    assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)] == handlers
    resumed = toy_run(tmp_path, steps=outcome.step + 1, resume=True)
    assert (resumed.step, resumed.finished, resumed.signal) == (outcome.step + 1, True, None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("last", [False, True])
def test_a_signal_ends_a_validation_at_once(tmp_path, number, last):
    """It is validated after the resume; all is then as without the signal."""
    options = {"validate_every": 2, "validation_pairs": 4, "steps": 2 if last else 4}

    class Signalling(Toy):
        batches = 0

        def batch(self, *args, **options):
            self.batches += 1
            if self.batches == 1:
                os.kill(os.getpid(), number)
            return super().batch(*args, **options)

    validation = Signalling(seed=1)
    sources = type(toy_sources(toy_config(tmp_path)))(Toy(), validation, "toy pairs")
    outcome = toy_run(tmp_path / "stopped", sources=sources, **options)
    assert (outcome.step, outcome.finished, outcome.signal, validation.batches) == (2, False, number, 1)
    toy_run(tmp_path / "stopped", resume=True, **options)
    toy_run(tmp_path / "whole", **options)
    assert comparable(tmp_path / "stopped") == comparable(tmp_path / "whole")
    progress = [read_checkpoint(tmp_path / name / "last.pt")["progress"] for name in ("stopped", "whole")]
    assert progress[0] | {"seconds": 0} == progress[1] | {"seconds": 0}


def test_a_run_that_ends_between_its_last_validation_and_its_last_checkpoint(tmp_path, monkeypatch):
    """The validation is recorded once, though it is made twice."""
    from gocor.training import run

    options, saves = {"steps": 2, "checkpoint_every": 2}, []

    def save_once(*args):
        if saves:
            raise KeyboardInterrupt
        saves.append(save(*args))

    save = run.save_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(run, "save_checkpoint", save_once)
        with pytest.raises(KeyboardInterrupt):
            toy_run(tmp_path / "ended", **options)
    toy_run(tmp_path / "ended", resume=True, **options)
    toy_run(tmp_path / "whole", **options)
    assert comparable(tmp_path / "ended") == comparable(tmp_path / "whole")


def test_a_signal_before_the_first_step_ends_the_run_at_once(tmp_path, monkeypatch, capsys):
    from gocor.training import loop

    def slow(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal did not end it")

    monkeypatch.setattr(loop, "build_step", slow)
    outcome = train(toy_config(tmp_path / "run"), sources=toy_sources(toy_config(tmp_path)))
    assert (outcome.step, outcome.finished, outcome.signal) == (0, False, signal.SIGINT)
    assert capsys.readouterr().out == "stopped by SIGINT before the first step\n"
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_the_network_is_compiled_ends_the_run_at_once(tmp_path, monkeypatch, capsys):
    def slow(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal did not end it")

    with monkeypatch.context() as patch:
        patch.setattr("gocor.training.run.Run._prepare_step", slow)
        patch.setattr(torch, "compile", lambda function, **_: function)
        config = toy_config(tmp_path, compile=True)
        outcome = train(config, sources=toy_sources(config))
    assert (outcome.finished, outcome.signal) == (False, signal.SIGTERM)
    *_, compiling, last = capsys.readouterr().out.splitlines()
    assert compiling.startswith("compiling the network")
    assert last == "stopped by SIGTERM before the first step"
    assert not (tmp_path / "last.pt").exists()
    assert toy_run(tmp_path, steps=2).finished


def test_time_limit_and_schedule_by_time(tmp_path):
    outcome = toy_run(tmp_path, steps=10**6, time_limit=0.02, schedule_by="time")
    assert outcome.finished
    assert 1 <= outcome.step < 1000
    progress = read_checkpoint(tmp_path / "last.pt")["progress"]
    assert 1.2 <= progress["seconds"] < 30
    rates = [record["lr"] for record in records(tmp_path) if record["kind"] == "train"]
    assert len(rates) == outcome.step
    again = toy_run(tmp_path, steps=10**6, time_limit=0.02, schedule_by="time", resume=True)
    assert again.step == outcome.step  # the time before counts


def test_starting_from_weights(tmp_path):
    toy_run(tmp_path / "first", steps=2)
    for name in ("last.pt", "best.safetensors"):
        folder = tmp_path / name
        toy_run(folder, steps=1, lr=1e-12, init=str(tmp_path / "first" / name))
        ours = read_checkpoint(folder / "last.pt")["network"]
        theirs = read_checkpoint(tmp_path / "first" / "last.pt")["average"]
        for key, value in ours.items():
            torch.testing.assert_close(value, theirs[key], rtol=2e-3, atol=1e-5)  # float16 in the one
    with pytest.raises(ValueError, match="does not fit basenet-gocor-tiny: it holds weights of pwcnet-gocor-tiny"):
        toy_run(tmp_path / "other", model="basenet-gocor-tiny", init=str(tmp_path / "first" / "last.pt"))


def test_weights_are_there_at_every_checkpoint(tmp_path):
    """So that a run that is killed loses no more of them than of the training state, be they the best or not."""

    class Dying(Toy):
        def batch(self, step, *args, **options):
            if step == 5:
                raise MemoryError
            return super().batch(step, *args, **options)

    sources = type(toy_sources(toy_config(tmp_path)))(Dying(), Toy(seed=1), "toy pairs")
    with pytest.raises(MemoryError):
        toy_run(tmp_path, steps=8, sources=sources, checkpoint_every=2)
    assert not (tmp_path / "best.safetensors").exists()
    average = read_checkpoint(tmp_path / "last.pt")["average"]
    weights = load_model("pwcnet-gocor-tiny", tmp_path / "latest.safetensors", device="cpu").state_dict()
    assert weights.keys() == average.keys()
    for key, value in weights.items():
        torch.testing.assert_close(value, average[key], rtol=2e-3, atol=1e-5)  # stored as float16
    assert read_row(tmp_path / "latest.toml").runs[0].steps == 4


def test_a_resume_does_not_need_the_weights_that_the_run_began_with(tmp_path):
    toy_run(tmp_path / "first", steps=1)
    init = tmp_path / "first" / "final.safetensors"
    toy_run(tmp_path / "run", steps=1, init=str(init))
    init.unlink()
    assert toy_run(tmp_path / "run", steps=2, init=str(init), resume=True).step == 2


def test_errors_are_one_line(tmp_path, monkeypatch):
    toy_run(tmp_path, steps=1)
    with pytest.raises(ValueError, match="holds a run already: --resume continues it"):
        toy_run(tmp_path)
    with pytest.raises(ValueError, match=r"belongs to a run of pwcnet-gocor-tiny, not of basenet-gocor-tiny"):
        toy_run(tmp_path, model="basenet-gocor-tiny", resume=True)

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    saved = (tmp_path / "last.pt").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left on device") as error:
            toy_run(tmp_path, steps=2, resume=True)
    assert str(tmp_path) in str(error.value.filename)
    assert (tmp_path / "last.pt").read_bytes() == saved
    (tmp_path / "last.pt").write_bytes(saved[:1000])
    with pytest.raises(ValueError, match=r"last.pt is damaged"):
        toy_run(tmp_path, resume=True)


def test_the_log_is_cut_at_the_checkpoint(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1}\n{"step": 2, "kind": "validation"}\n{"step": 3}\n{"step": 2, "lo')
    trim_log(log, 2)
    assert log.read_text() == '{"step": 1}\n{"step": 2, "kind": "validation"}\n'
    trim_log(log, 2, validated=False)
    assert log.read_text() == '{"step": 1}\n'
    trim_log(tmp_path / "none.jsonl", 2)
    assert not (tmp_path / "none.jsonl").exists()
