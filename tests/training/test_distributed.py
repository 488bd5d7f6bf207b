"""Two processes train as one."""

import os
import socket
import subprocess
import sys

import pytest
import torch

from gocor.training.checkpoint import read_checkpoint
from gocor.training.distributed import Group, processes

from .test_resume import ROOT, records
from .toy import toy_run

STEPS = 4
OPTIONS = {"batch": 4, "lr": 2e-4}


def test_two_processes_take_the_steps_of_one(tmp_path):
    """Same losses and weights, from the gradient of one batch in two halves, whose pixels count unequally."""
    one, two = tmp_path / "one", tmp_path / "two"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "tests.training.toy",
        str(two),
        str(STEPS),
        *(f"{key}={value}" for key, value in OPTIONS.items()),
    ]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = [subprocess.Popen(command, cwd=ROOT, env=environment | {"RANK": str(rank)}) for rank in range(2)]
    toy_run(one, steps=STEPS, **OPTIONS)
    try:
        assert [process.wait(timeout=120) for process in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
    for ours, theirs in zip(records(two), records(one), strict=True):
        assert (ours["step"], ours["kind"]) == (theirs["step"], theirs["kind"])
        for key in {"loss", "epe", "lr", "skipped", "pck3"} & theirs.keys():
            assert ours[key] == pytest.approx(theirs[key], rel=1e-5), key
    ours, theirs = (read_checkpoint(folder / "last.pt") for folder in (two, one))
    for part in ("network", "average"):
        for key, value in ours[part].items():
            # AdamW makes a part of a step, of 2e-3, out of the rounding of a gradient that is nearly zero.
            torch.testing.assert_close(value, theirs[part][key], rtol=1e-5, atol=5e-5)
    assert {path.name for path in two.iterdir() if "tfevents" in path.name} != set()


def test_alone_nothing_is_exchanged():
    group = Group(0, 1, torch.device("cpu"))
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    group.sum_gradients([parameter])
    assert parameter.grad.tolist() == [1, 1]
    assert group.largest(1.5, 0.0) == [1.5, 0.0]
    assert group.main


def test_a_batch_that_cannot_be_shared(tmp_path, monkeypatch):
    from contextlib import contextmanager

    @contextmanager
    def three(device):
        yield Group(0, 3, torch.device("cpu"))

    monkeypatch.setattr("gocor.training.loop.processes", three)
    with pytest.raises(ValueError, match="batch must be a multiple of the 3 processes, got 2"):
        toy_run(tmp_path)


def test_processes_that_others_have_joined_stay_joined(tmp_path, monkeypatch):
    """Ray Train starts the process group itself."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        monkeypatch.setenv("WORLD_SIZE", "2")
        with processes("cpu") as group:
            assert (group.rank, group.world_size) == (0, 1)
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()
