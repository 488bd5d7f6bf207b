"""Protocols: a perfect flow is perfect and a wrong one bad on every benchmark, and what is averaged over what."""

import numpy as np
import pytest

from gocor.data.datasets import MissingDataError, Pair, open_dataset
from gocor.evaluation import evaluate, open_benchmark
from gocor.evaluation.benchmarks import ENTRIES, NAMES, SEVERAL
from gocor.evaluation.metrics import endpoint_errors, sums
from gocor.evaluation.protocols import (
    HPATCHES,
    HPATCHES_240,
    INSIDE,
    MEGADEPTH,
    SINTEL,
    Protocol,
    score,
    summarise,
)

from ..data.datasets.samples import REAL, needs_real, pictures, write_sample
from .oracles import Oracle, true_flow

SYNTHETIC = {name: entry.reader for name, entry in ENTRIES.items()}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """What opens a benchmark on a synthetic sample, which is written once."""
    roots = {}

    def opened(name, rules=None, **options):
        reader = SYNTHETIC[name]
        if reader not in roots:
            roots[reader] = write_sample(reader, tmp_path_factory.mktemp(reader) / "data")
        return open_benchmark(name, roots[reader], rules=rules, **options)[name]

    return opened


CASES = [
    (name, rules)
    for name, entry in ENTRIES.items()
    for rules in (None, "text", "inside")
    if rules != "text" or entry.text
]


@pytest.mark.parametrize(("name", "rules"), CASES)
def test_perfect_is_perfect(name, rules, bench):
    dataset, protocol = bench(name, rules)
    found = evaluate(Oracle(dataset, protocol), dataset, protocol)
    for region in found.summary["regions"].values():
        for average in ("pair", "group", "pooled"):
            assert region[average]["aepe"] == pytest.approx(0, abs=1e-4)
            assert region[average]["pck-1"] == 1
            assert region[average]["fl"] == 0
    assert all(
        value == pytest.approx(0 if key in ("aepe", "fl") else 1, abs=1e-4) for key, value in found.metrics.items()
    )


@pytest.mark.parametrize("name", ENTRIES)
def test_the_wrong_direction_is_bad(name, bench):
    dataset, protocol = bench(name)
    found = evaluate(Oracle(dataset, protocol, factor=-1), dataset, protocol)
    figures = found.summary["regions"]["all"]["pair"]
    assert figures["pck-1"] == 0
    assert figures["fl"] == 1
    mean = [endpoint.mean() for endpoint in (_lengths(dataset, protocol))]
    assert figures["aepe"] == pytest.approx(2 * np.mean(mean), rel=1e-5)


def _lengths(dataset, protocol):
    for pair in dataset:
        prepared = protocol.prepare(pair)
        options = {"inside_only": protocol.inside_only, "rounding": protocol.rounding}
        yield endpoint_errors(prepared, true_flow(prepared, protocol.rounding), **options).length


@needs_real
def test_perfect_and_wrong_on_the_real_samples():
    for name, (dataset, protocol) in open_benchmark("dev", REAL, limit=1).items():
        oracle = Oracle(dataset, protocol)
        right = evaluate(oracle, dataset, protocol).metrics
        assert right["aepe"] < 1e-4, name
        assert right["pck-1"] == 1, name
        wrong = evaluate(lambda *images, oracle=oracle: -oracle(*images), dataset, protocol).metrics
        assert wrong["aepe"] > 2, name
        assert wrong["pck-1"] < 0.2, name


@needs_real
@pytest.mark.parametrize("name", ["hpatches", "hpatches-240", "sintel-final", "kitti2015"])
def test_perfect_under_the_papers_rules_on_real_samples(name):
    dataset, protocol = open_benchmark(name, REAL, limit=1)[name]
    found = evaluate(Oracle(dataset, protocol), dataset, protocol)
    assert found.metrics["aepe"] < 1e-4
    assert "noc" in found.summary["regions"] or name.startswith("hpatches")


def test_hpatches_sizes(tmp_path):
    pair = open_dataset("hpatches", write_sample("hpatches", tmp_path))[0]
    assert HPATCHES.prepare(pair).query.shape == pair.reference.shape
    assert HPATCHES_240.prepare(pair).reference.shape == (240, 240, 3)


def test_megadepth_sizes(tmp_path):
    pair = MEGADEPTH.prepare(open_dataset("megadepth", write_sample("megadepth", tmp_path))[0])
    assert pair.reference.shape == pair.query.shape == (480, 672, 3)


def row(name, group, error, points=10):
    values = np.full(points, float(error))
    return {"name": name, "group": group, "seconds": 1.0, "regions": {"all": sums(values, values + 100)}}


def test_what_is_averaged_over_what():
    rows = [row("a", "x", 0), row("b", "x", 4), row("c", "y", 8, points=980)]
    figures = summarise(INSIDE, rows)["regions"]["all"]
    assert figures["pair"]["aepe"] == pytest.approx(4)
    assert figures["group"]["aepe"] == pytest.approx((2 + 8) / 2)
    assert figures["pooled"]["aepe"] == pytest.approx((0 + 40 + 8 * 980) / 1000)
    for average in ("pair", "group", "pooled"):
        chosen = summarise(Protocol("p", metrics=("aepe",), average={"aepe": average}), rows)["metrics"]
        assert chosen == {"aepe": figures[average]["aepe"]}


def test_sintel_is_pooled_by_its_numbers_and_not_by_its_text(bench):
    dataset, paper = bench("sintel-clean")
    text = bench("sintel-clean", "text").protocol
    assert paper is not text
    rows = [row("a", "", 0), row("b", "", 8, points=90)]
    assert summarise(SINTEL, rows)["metrics"]["aepe"] == pytest.approx(7.2)
    assert summarise(text, rows)["metrics"]["aepe"] == pytest.approx(4)
    assert summarise(SINTEL, rows)["metrics"]["pck-5"] == pytest.approx(0.1)
    assert summarise(text, rows)["metrics"]["pck-5"] == pytest.approx(0.5)
    assert len(dataset) == 2


def test_kitti_outliers_are_pooled_and_its_errors_are_not(bench):
    protocol = bench("kitti2012").protocol
    rows = [row("a", "", 0), row("b", "", 8, points=90)]
    assert summarise(protocol, rows)["metrics"] == pytest.approx({"aepe": 4, "fl": 0.9})


def test_pck_alpha_goes_by_the_query_before_padding(bench):
    dataset, protocol = bench("tss")
    original = dataset[0]
    pair = protocol.prepare(original)
    assert pair.query.shape[0] > original.query.shape[0]
    limit = 0.05 * max(original.query.shape[:2])  # 2.8 pixels
    flow = true_flow(pair).astype(np.float64)
    flow[:, :25, 0] += limit - 0.01
    flow[:, 25:, 0] += limit + 0.01
    found = score(protocol, original, pair, flow)["regions"]["all"]
    assert found["within"] / found["n"] == pytest.approx(15 / 30)


def test_points_outside_count_in_flow_benchmarks_only(bench):
    dataset, paper = bench("kitti2015")
    pair = dataset[0]
    everything = score(paper, pair, pair, pair.flow)["regions"]["all"]["n"]
    inside = score(INSIDE, pair, pair, pair.flow)["regions"]["all"]["n"]
    assert everything == pair.valid.sum() > inside


def test_homography_and_pose_auc(bench):
    dataset, protocol = bench("hpatches", geometry=True)
    found = evaluate(Oracle(dataset, protocol), dataset[:1], protocol).summary
    assert found["homography_auc"]["3"] > 0.99
    dataset, protocol = bench("eth3d-3", geometry=True)
    wild = lambda reference, query: np.random.default_rng(0).normal(0, 30, (*reference.shape[:2], 2))  # noqa: E731
    found = evaluate(wild, dataset[:1], protocol).summary
    assert 0 <= found["pose_auc"]["20"] < 1


def test_no_point_counts():
    with pytest.raises(ValueError, match="no pair has any point"):
        summarise(INSIDE, [])
    pair = Pair("a", *pictures(), points=np.array([[1.0, 1, -5, -5]]))
    assert score(INSIDE, pair, pair, np.zeros((40, 56, 2))) is None


def test_benchmarks_by_name(tmp_path):
    write_sample("sintel", tmp_path)
    assert list(open_benchmark("sintel", tmp_path)) == ["sintel-clean", "sintel-final"] == list(SEVERAL["sintel"])
    assert "dev" in NAMES
    with pytest.raises(ValueError, match="no benchmark is named 'kitty'; there are dev"):
        open_benchmark("kitty", tmp_path)
    with pytest.raises(ValueError, match="rules"):
        open_benchmark("sintel", tmp_path, rules="mine")
    with pytest.raises(ValueError, match="dev is no data set of the paper"):
        open_benchmark("dev", tmp_path, rules="text")
    with pytest.raises(MissingDataError, match="holds none of the folders that dev scores: hpatches, middlebury"):
        open_benchmark("dev", tmp_path)


def test_eth3d_is_a_set_an_interval(tmp_path):
    found = open_benchmark("eth3d", write_sample("eth3d", tmp_path))
    assert list(found) == [f"eth3d-{interval}" for interval in (3, 5, 7, 9, 11, 13, 15)]
