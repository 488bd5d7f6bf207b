"""A short, seeded run of `make chaos`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the trials fork")
def test_results_do_not_depend_on_disturbances():
    command = [sys.executable, "-m", "tests.chaos", "--kills", "3", "--rounds", "0", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all results are those of undisturbed runs" in done.stdout
