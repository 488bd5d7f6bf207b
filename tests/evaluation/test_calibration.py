"""Calibration: figures by hand, a calibrated generator, units, occlusions, and the whole path through a network."""

import io
import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch

import gocor
from gocor.data.datasets import Pair, open_dataset
from gocor.evaluation import INSIDE, evaluate, network_matcher, open_benchmark
from gocor.evaluation.baselines import identity
from gocor.evaluation.calibration import (
    BINS,
    RIGHT_WITHIN,
    ause,
    calibration_row,
    compare,
    roc_auc,
    summarise_calibration,
)
from gocor.evaluation.calibration_report import draw_calibration, reliability_tables, summary_tables
from gocor.evaluation.estimates import Estimate, network_estimator
from gocor.evaluation.reports import terminal_tables, to_json, to_markdown, write_report
from gocor.models import create_model
from gocor.training import losses

from ..data.datasets.samples import write_sample

CALIBRATED = replace(INSIDE, calibration=True)


def summary(*rows):
    return summarise_calibration([{"calibration": row} for row in rows])["calibration"]


def pair_of(flow, occluded=None, valid=None, query=None):
    height, width = flow.shape[:2]
    reference = np.zeros((height, width, 3), np.uint8)
    valid = np.ones((height, width), bool) if valid is None else valid
    return Pair("a", reference, reference if query is None else query, flow.astype(np.float32), valid, occluded)


def test_the_threshold_is_that_of_the_training():
    assert RIGHT_WITHIN == losses.RIGHT_WITHIN


def test_ece_by_hand():
    confidence = np.array([0.95, 0.95, 0.95, 0.95, 0.25, 0.25])
    right = np.array([True, True, True, False, True, False])
    found = summary({"confidence": compare(confidence, right) | {"source": "s"}})["confidence"]
    assert found["ece"] == pytest.approx(4 / 6 * abs(0.95 - 0.75) + 2 / 6 * abs(0.25 - 0.5))
    assert found["predicted"] == pytest.approx((4 * 0.95 + 2 * 0.25) / 6)
    assert found["true"] == pytest.approx(4 / 6)
    assert (found["pairs"], found["points"], found["source"]) == (1, 6, "s")
    assert len(found["bins"]) == BINS
    assert found["bins"][9] == {
        "low": 0.9,
        "high": 1.0,
        "share": pytest.approx(4 / 6),
        "predicted": pytest.approx(0.95),
        "true": 0.75,
    }
    assert found["bins"][2]["true"] == 0.5
    assert found["bins"][0] == {"low": 0.0, "high": 0.1, "share": 0.0, "predicted": None, "true": None}


def test_zero_and_one_are_in_the_outer_bins():
    found = compare(np.array([0.0, 1.0, 1.0]), np.array([False, True, True]))
    assert found["bins"]["n"] == [1, *[0] * (BINS - 2), 2]


def test_each_pair_counts_alike():
    """A pair of one sure and right point, and one of 99 sure and wrong points."""
    sure = compare(np.ones(1), np.ones(1, bool)), compare(np.ones(99), np.zeros(99, bool))
    found = summary(*({"confidence": part | {"source": ""}} for part in sure))["confidence"]
    assert found["true"] == found["ece"] == pytest.approx(0.5)
    assert found["points"] == 100


def test_a_calibrated_generator_has_no_error_and_others_have():
    generator = np.random.default_rng(0)
    confidence = generator.beta(2, 0.7, 400_000)
    right = generator.random(confidence.size) < confidence

    def ece(probability):
        return summary({"confidence": compare(probability, right) | {"source": ""}})["confidence"]["ece"]

    assert ece(confidence) < 0.004
    assert ece(np.sqrt(confidence)) > 0.05  # claims too much
    assert ece(confidence**2) > 0.05  # claims too little
    assert ece(np.full_like(confidence, right.mean())) < 1e-6  # calibrated too, but it tells nothing apart
    assert roc_auc(np.full_like(confidence, 0.5), right) == pytest.approx(0.5)
    assert roc_auc(confidence, right) > 0.8


def test_roc_auc_is_the_share_of_pairs_in_order():
    generator = np.random.default_rng(1)
    score, truth = generator.integers(0, 6, 60) / 6, generator.random(60) < 0.4
    higher = score[truth][:, None] > score[~truth]
    tie = score[truth][:, None] == score[~truth]
    assert roc_auc(score, truth) == pytest.approx((higher + tie / 2).mean())
    assert roc_auc(score, np.ones(60, bool)) is None


def test_ause_by_hand():
    error = np.array([1.0, 3.0])
    assert ause(np.array([0.9, 0.1]), error) == 0
    # The worse point is kept to the last: means of 3, then 2, in place of 1, then 2; all points have 2.
    assert ause(np.array([0.1, 0.9]), error) == pytest.approx((3 - 1) / 2 / 2)
    assert ause(np.array([0.5, 0.5]), error) == pytest.approx((2 - 1) / 2 / 2)
    assert ause(np.array([0.1, 0.9]), np.zeros(2)) == 0


def test_right_is_measured_in_the_pixels_of_the_confidence():
    """An error of (3, 0) pixels of the query is 1.5 pixels at half its size and 6 at double."""
    estimate = np.zeros((4, 8, 2), np.float32)
    estimate[..., 0] = 3
    confidence = np.full((4, 8), 0.8, np.float32)
    for scale, right in (((1, 1), 0), ((0.5, 1), 1), ((2, 1), 0), ((1, 0.5), 0)):
        found = calibration_row(pair_of(np.zeros((4, 8, 2))), Estimate(estimate, confidence, None, scale))
        assert set(found) == {"confidence"}
        assert sum(found["confidence"]["bins"]["true"]) == right * 32


def test_hidden_points_are_not_right_and_not_visible():
    truth = np.zeros((2, 4, 2))
    truth[:, 3] = (1, 0)  # leaves the query on the right
    occluded = np.zeros((2, 4), bool)
    occluded[0, 0] = True
    confidence = np.full((2, 4), 0.95, np.float32)
    visibility = np.where(occluded, 0.05, 0.85).astype(np.float32)
    found = calibration_row(pair_of(truth, occluded), Estimate(truth, confidence, visibility, (1.0, 1.0), "learnt"))
    assert found["confidence"]["bins"]["n"][9] == 6  # those whose target is in the query
    assert found["confidence"]["bins"]["true"][9] == 5
    assert found["visibility"]["bins"]["n"] == [1, 0, 0, 0, 0, 0, 0, 0, 7, 0]
    assert found["visibility"]["bins"]["true"] == [0, 0, 0, 0, 0, 0, 0, 0, 5, 0]
    assert found["visibility"]["source"] == "learnt"
    without_masks = calibration_row(pair_of(truth), Estimate(truth, confidence, visibility))
    assert set(without_masks) == {"confidence"}
    assert without_masks["confidence"]["bins"]["true"][9] == 6


def test_sparse_points_and_values_that_are_not_finite():
    reference = np.zeros((4, 6, 3), np.uint8)
    pair = Pair("a", reference, reference, points=np.array([[1.5, 1, 1.5, 1], [4, 2, 4, 2.0]]))
    confidence = np.zeros((4, 6), np.float32)
    confidence[1, 1:3] = (0.2, 0.4)
    confidence[2, 4] = np.nan
    flow = np.zeros((4, 6, 2), np.float32)
    flow[2, 4] = np.nan
    found = calibration_row(pair, Estimate(flow, confidence))["confidence"]["bins"]
    assert found["n"] == [1, 0, 0, 1, *[0] * 6]
    assert found["predicted"][3] == pytest.approx(0.3)
    assert found["true"] == [0, 0, 0, 1, *[0] * 6]
    read = calibration_row(pair, Estimate(flow, confidence), rounding="read")["confidence"]["bins"]
    assert read["predicted"][4] == pytest.approx(0.4)


def test_wrong_confidences_are_errors():
    pair, flow = pair_of(np.zeros((4, 6, 2))), np.zeros((4, 6, 2), np.float32)
    with pytest.raises(ValueError, match=r"the confidence must have shape \(4, 6\), got \(6, 4\)"):
        calibration_row(pair, Estimate(flow, np.zeros((6, 4), np.float32)))
    with pytest.raises(ValueError, match=r"the confidence must be in \[0, 1\], got 0 to 2"):
        calibration_row(pair, Estimate(flow, np.diag([2.0] * 6)[:4].astype(np.float32)))


@pytest.mark.parametrize("options", [{}, {"confidence": "consistency"}, {"min_size": 160}, {"align": True}])
def test_confidence_is_that_of_matching(options, tmp_path):
    network = create_model("recurrent-gocor-tiny").eval()
    pair = open_dataset("sintel", write_sample("sintel", tmp_path))[0]
    found = network_estimator(network, **options)(pair.reference, pair.query)
    result = gocor.match(pair.reference, pair.query, network, **{"align": False} | options)
    assert np.array_equal(found.flow, result.flow.permute(1, 2, 0))
    assert np.array_equal(found.confidence, result.confidence)
    assert np.array_equal(found.flow, network_matcher(network, **options)(pair.reference, pair.query))
    assert found.source == options.get("confidence", "learnt")
    if found.source == "learnt":
        assert np.array_equal(found.visibility < 0.5, result.occlusion)
    else:
        assert found.visibility is None
    height, width = network.working_size(*pair.reference.shape[:2], min_size=options.get("min_size", network.min_size))
    assert found.scale == (width / pair.query.shape[1], height / pair.query.shape[0])


def test_the_scale_is_that_of_the_query():
    network = create_model("recurrent-gocor-tiny").eval()
    images = np.zeros((64, 96, 3), np.uint8), np.zeros((128, 48, 3), np.uint8)
    found = network_estimator(network, min_size=0)(*images)
    assert found.scale == (96 / 48, 64 / 128)


@pytest.fixture
def results(tmp_path):
    """A network that learns a confidence, and one that does not, on both renderings of Sintel."""
    torch.manual_seed(0)
    benchmarks = open_benchmark("sintel", write_sample("sintel", tmp_path / "data"), calibration=True)
    networks = {name: create_model(name) for name in ("recurrent-gocor-tiny", "pwcnet-gocor-tiny")}
    return {
        name: {
            key: evaluate(matcher, dataset, protocol, save=tmp_path / "saved" / name / key)
            for key, (dataset, protocol) in benchmarks.items()
        }
        for name, matcher in (*networks.items(), ("identity", identity))
    }


def test_what_is_measured_of_whom(results):
    learnt, consistency, none = (sets["sintel-final"].summary for sets in results.values())
    assert set(learnt["calibration"]) == {"confidence", "visibility"}
    assert learnt["calibration"]["confidence"]["source"] == "learnt"
    assert set(consistency["calibration"]) == {"confidence"}
    assert consistency["calibration"]["confidence"]["source"] == "consistency"
    assert "calibration" not in none
    shares = [found["share"] for found in learnt["calibration"]["visibility"]["bins"]]
    assert sum(shares) == pytest.approx(1)


def test_pairs_of_other_rules_are_computed_again(tmp_path):
    dataset = open_dataset("middlebury", write_sample("middlebury", tmp_path / "data"))
    network = create_model("recurrent-gocor-tiny")
    plain = evaluate(network, dataset, INSIDE, save=tmp_path / "saved")
    assert "calibration" not in plain.summary
    measured = evaluate(network, dataset, CALIBRATED, save=tmp_path / "saved")
    assert "calibration" in measured.summary
    assert measured.metrics == plain.metrics
    resumed = evaluate(network, dataset, CALIBRATED, save=tmp_path / "saved")
    assert resumed.summary == measured.summary


def test_tables(results):
    tables = summary_tables(results)
    titles = ["recurrent-gocor-tiny: confidence (learnt)", "pwcnet-gocor-tiny: confidence (consistency)"]
    assert [table.title for table in tables] == [*titles, "recurrent-gocor-tiny: visibility (learnt)"]
    assert tables[0].head == ["mean confidence", "right", "ECE", "AUC", "AUSE"]
    assert tables[2].head == ["mean visibility", "visible", "ECE", "AUC"]
    assert [row[0] for row in tables[0].rows] == ["sintel-clean", "sintel-final", "all"]
    clean, final, everything = (float(row[1]) for row in tables[2].rows)
    assert everything == pytest.approx((clean + final) / 2, abs=0.11)  # both have two pairs
    reliability = reliability_tables(results, only_all=True)[0]
    assert reliability.head == ["all: share", "all: confidence", "all: right"]
    assert [row[0] for row in reliability.rows][::9] == ["0.0 to 0.1", "0.9 to 1.0"]
    assert sum(float(row[1]) for row in reliability.rows) == pytest.approx(100, abs=0.5)


def test_reports(results, tmp_path):
    from rich.console import Console

    console = Console(width=120, file=io.StringIO())
    for table in terminal_tables(results, 120):
        console.print(table)
    assert "pwcnet-gocor-tiny: confidence (consistency)" in console.file.getvalue()
    text = to_markdown(results, title="t")
    assert "## calibration of recurrent-gocor-tiny: visibility (learnt)" in text
    assert "| data set | mean confidence | right | ECE | AUC | AUSE |" in text
    names = {path.name for path in write_report(results, tmp_path / "report", title="t")}
    assert names == {"results.json", "results.md", "pck.png", "aepe.png", "calibration.png", "visibility.png"}
    content = json.loads((tmp_path / "report" / "results.json").read_text())
    assert set(content["calibration"]) == {"recurrent-gocor-tiny", "pwcnet-gocor-tiny"}
    one = content["matchers"]["recurrent-gocor-tiny"]["sintel-clean"]
    assert one["calibration"]["confidence"]["pairs"] == 2
    assert 0 <= one["calibration"]["confidence"]["ece"] <= 1


def test_reports_without_confidences_have_no_calibration(results, tmp_path):
    only = {"identity": results["identity"]}
    assert not draw_calibration(only)
    assert not summary_tables(only)
    assert "calibration" not in to_json(only)


def test_plots(results):
    files = draw_calibration(results)
    assert set(files) == {"calibration.png", "visibility.png"}
    for data in files.values():
        assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).std() > 5
