"""`gocor bench match`: what is timed, and what is told about it."""

import json

import pytest
import torch

from gocor.bench import end_to_end
from gocor.bench.busy import mean_share, measure_busy
from gocor.bench.end_to_end import CLASSICAL, STAGES, measure_method, render_pairs
from gocor.data.io import read_image
from gocor.matching import MatchOptions
from gocor.pipeline.job import Job

from ..cli.test_cli import runner
from ..pipeline.toy import fake_match, make_pairs


def test_rendered_pairs_have_two_sizes_and_differ(tmp_path):
    pairs = render_pairs(tmp_path, 3)
    images = [read_image(pair.reference) for pair in pairs]
    assert [image.shape[:2] for image in images] == [(480, 640), (512, 384), (480, 640)]
    assert (images[0] != images[2]).any()
    assert (images[0] != read_image(pairs[0].query)).any()


def test_time_is_divided_into_stages(tmp_path):
    pairs = make_pairs(tmp_path, 4)
    pairs[3].query.unlink()
    speed = measure_method("fake", fake_match, pairs, Job(batch=2))
    assert (speed.pairs, speed.failed) == (4, 1)
    found = speed.as_json()
    assert found["stages_ms"].keys() == set(STAGES)
    assert found["stages_ms"]["align"] == 0
    assert all(found["stages_ms"][name] > 0 for name in ("decode", "match", "write"))
    assert found["pairs_per_second"] == pytest.approx(4 / speed.seconds)


@pytest.mark.usefixtures("quick_alignment")
def test_alignment_is_a_stage_of_its_own(tmp_path):
    pairs = make_pairs(tmp_path, 2, sizes=((64, 64),))
    job = Job(model="glunet-gocor-tiny", weights=None, batch=2, matching=MatchOptions(min_size=0, iters_local=1))
    network = end_to_end.load_network(job, "cpu", quiet=True)
    torch.set_num_threads(1)
    speed = measure_method("tiny", end_to_end.network_match(network, job), pairs, job)
    assert speed.failed == 0
    assert speed.stages["align"] > 0
    assert speed.stages["match"] > 0


def test_the_load_of_a_gpu_is_the_mean_of_its_readings():
    assert mean_share("90\n20\n40\n") == pytest.approx(0.3)
    assert mean_share("90\n") is None
    assert mean_share("[N/A]\n[N/A]\n") is None
    with measure_busy(torch.device("cpu")) as busy:
        pass
    assert busy.share is None


def test_the_command(monkeypatch, capfd, tmp_path):
    make_pairs(tmp_path, 2)
    run = runner(monkeypatch, capfd)
    arguments = ["bench", "match", "--pairs", tmp_path / "pairs.csv", "--model", "pwcnet-gocor-tiny", "--device", "cpu"]
    arguments += ["--formats", "npz", "--processes", "2"]
    code, out, err = run(*arguments, "--json", tmp_path / "speeds.json")
    assert (code, err) == (0, "")
    rows = json.loads((tmp_path / "speeds.json").read_text())["match"]
    names = ["", ", 2 processes", ", pictures", ", pictures, 2 processes"]
    assert [row["method"] for row in rows] == [*(f"pwcnet-gocor-tiny{name}" for name in names), *CLASSICAL]
    assert [row["processor_ms"] is None for row in rows] == [False, True, False, True, False, False]
    for row in rows:
        assert row["method"] in out
        assert row["failed"] == 0
    assert run("bench", "modules", "--pairs", "x.csv")[2] == "gocor: --pairs is for the section match\n"
