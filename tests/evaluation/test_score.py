"""On the dev pairs we agree with an independent program that scores the same files."""

import importlib.util

import numpy as np
import pytest

from gocor.evaluation import BASELINES, evaluate, open_benchmark

from ..data.datasets.samples import REAL, SHARED, needs_real

SCORE = SHARED / "tools" / "score.py"
pytestmark = [needs_real, pytest.mark.skipif(not SCORE.is_file(), reason=f"{SCORE} is not there")]


@pytest.fixture(scope="module")
def score():
    specification = importlib.util.spec_from_file_location("independent_score", SCORE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def compare(score, name, sets=None, limit=None):
    """Every figure of every pair; the two programs have readers, matchers and metrics of their own."""
    theirs = {}
    benchmarks = open_benchmark("dev", REAL, limit=limit)
    benchmarks = {key: benchmark for key, benchmark in benchmarks.items() if sets is None or key in sets}
    for pair in score.dev_pairs(str(REAL)):
        key = pair.dataset.removeprefix("dev_")
        if key in benchmarks and pair.name in benchmarks[key].dataset.names:
            theirs[key, pair.name] = score.evaluate(pair, score.BUILTINS[name.replace("-", "_")])
    checked = 0
    for key, (data, protocol) in benchmarks.items():
        for row in evaluate(BASELINES[name], data, protocol).rows:
            other = theirs.pop((key, row["name"]))
            for region, part in (("all", "all"), ("noc", "noc")):
                assert (region in row["regions"]) == (other[part] is not None)
                if other[part] is None:
                    continue
                ours = row["regions"][region]
                assert ours["n"] == other[part]["n"]
                assert ours["error"] / ours["n"] == pytest.approx(other[part]["aepe"] / ours["n"], abs=1e-4)
                for threshold in (1, 3, 5):
                    assert abs(ours[f"pck-{threshold}"] - other[part][f"pck{threshold}"]) <= 1e-4 * ours["n"]
                assert abs(ours["fl"] - other[part]["fl"]) <= 1e-4 * ours["n"]
                checked += 1
    assert not theirs
    return checked


def test_all_pairs_with_identity(score):
    assert compare(score, "identity") == 37 + 7  # pairs, and those whose occlusions are known


@pytest.mark.parametrize("name", ["dis", "farneback", "sift-homography"])
def test_a_pair_of_each_kind(score, name):
    assert compare(score, name, ("hpatches_v", "flyingchairs", "stereo"), limit=1) == 3 + 1


def test_the_summary_too(score):
    pairs = [pair for pair in score.dev_pairs(str(REAL)) if pair.dataset == "dev_stereo"]
    theirs = score.summarise([score.evaluate(pair, score.identity) for pair in pairs])["dev_stereo"]
    data, protocol = open_benchmark("dev", REAL)["stereo"]
    ours = evaluate(BASELINES["identity"], data, protocol).summary["regions"]
    assert ours["all"]["pair"]["aepe"] == pytest.approx(theirs["aepe"], abs=1e-4)
    assert ours["all"]["pooled"]["pck-5"] == pytest.approx(theirs["pooled"]["pck5"], abs=1e-6)
    assert ours["noc"]["pair"]["fl"] == pytest.approx(theirs["fl_noc"], abs=1e-6)
    assert ours["all"]["points"] == theirs["points"]
    assert np.isfinite(theirs["aepe"])
